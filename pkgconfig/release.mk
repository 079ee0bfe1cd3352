# What a release is made of. The Makefile includes this file.
#
## To release
#   make dist REVISION=v0.2.0       the archive of another commit than the last one
REVISION ?= HEAD
DIST     := $(BUILD)/dist
DEB      := $(BUILD)/deb

.PHONY: dist deb
dist:                   ## the sources as an archive, its checksum and its bill of materials
	$(Q)sh pkgconfig/dist.sh '$(VERSION)' '$(DIST)' '$(REVISION)'
deb: dist               ## Debian packages of the archive, into build/deb
	$(Q)sh pkgconfig/deb.sh '$(VERSION)' '$(DIST)' '$(DEB)'
