# What is made for other languages. The Makefile includes this file.
.PHONY: bindings wheel
bindings:               ## write what the packages for Python and Rust have of the public header
	$(Q)$(PYTHON) pkgconfig/python/make_abi.py
	$(Q)$(PYTHON) pkgconfig/rust/generate.py pkgconfig/rust/specbatch-sys
wheel: $(SHARED)        ## the Python package with the library in it, as $(BUILD)/wheel/*.whl (pip)
	$(Q)LIBRARY='$(B)/$(SONAME)' OUTPUT='$(BUILD)/wheel' PYTHON='$(PYTHON)' \
	    sh pkgconfig/python/make_wheel.sh
