"""Everything is in pyproject.toml, except the C extension: cffi has no other place to be told of it."""

from setuptools import setup

setup(cffi_modules=["csrc/build_native.py:ffi"])
