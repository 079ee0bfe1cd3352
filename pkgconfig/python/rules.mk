# The Python package's wheel (docs/python.md). The Makefile includes this file.
.PHONY: wheel
wheel: $(SHARED)        ## the Python package with the library in it, as $(BUILD)/wheel/*.whl (pip)
	$(Q)LIBRARY='$(B)/$(SONAME)' OUTPUT='$(BUILD)/wheel' PYTHON='$(PYTHON)' \
	    sh pkgconfig/python/make_wheel.sh
