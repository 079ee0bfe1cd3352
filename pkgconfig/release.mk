# What a release is made of. The Makefile includes this file.
#
## To release
#   make dist REVISION=v0.2.0       the archive of another commit than the last one
#   make release-check ITEMS="soak deb" MINUTES=60 REQUESTS=1000000
#                                   these items; minutes of a fuzz target; requests of the soak
REVISION ?= HEAD
DIST     := $(BUILD)/dist
DEB      := $(BUILD)/deb

.PHONY: dist deb release-check
dist:                   ## the sources as an archive, its checksum and its bill of materials
	$(Q)sh pkgconfig/dist.sh '$(VERSION)' '$(DIST)' '$(REVISION)'
deb: dist               ## Debian packages of the archive, into build/deb
	$(Q)sh pkgconfig/deb.sh '$(VERSION)' '$(DIST)' '$(DEB)'
release-check:          ## what a release has to pass, hours; into build/release/summary.txt
	$(Q)$(FOR_SCRIPTS) ITEMS='$(ITEMS)' MINUTES='$(MINUTES)' REQUESTS='$(REQUESTS)' \
	    sh pkgconfig/release_check.sh
