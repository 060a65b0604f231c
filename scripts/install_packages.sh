#!/bin/sh
# In an image: install the pinned Python packages of a requirements file into /opt/packages, and leave no installer behind.
set -eu
unset PYTHONPATH
export DEBIAN_FRONTEND=noninteractive PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
apt-get update
apt-get install --yes --no-install-recommends python3-pip python3-setuptools python3-wheel
# Spark comes as a source archive: what builds it is Debian's, not whatever pip would fetch.
pip install --no-build-isolation --require-hashes --target /opt/packages --requirement "$1"
apt-get purge --yes --auto-remove python3-pip python3-setuptools python3-wheel
rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/*
