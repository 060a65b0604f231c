#!/bin/sh
# Pin what the images and the development environment install, with hashes, for every Python from 3.11 on.
set -eu
cd "$(dirname "$0")/.."
pin() {
    output=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
        "$@" --output-file "requirements/$output.txt"
}
pin operator pyproject.toml --extra operator
pin driver --group driver-image
pin dev pyproject.toml --extra operator --extra driver --group dev
