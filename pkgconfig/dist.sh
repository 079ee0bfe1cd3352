#!/bin/sh
# Makes a release: dist.sh VERSION FOLDER REVISION writes these into FOLDER; `make dist` calls it.
#
#   specbatch-VERSION.tar.gz           the files of the commit; the same bytes from the same commit
#   specbatch-VERSION.cdx.json         what they consist of, as a CycloneDX bill of materials
#   specbatch-VERSION.sha256           the checksums of both: sha256sum -c
#
# The archive is git's: names in order, all owned by root, all as old as the commit. What is not
# committed is not in it. The bill is written out here, since no tool can find out more: those that
# are there read the metadata of package managers, and a C library has none.
version=$1
out=$2
revision=$3
name=specbatch-$version

fail() {
    echo "dist: $*" >&2
    exit 1
}
cd "$(dirname "$0")/.." || exit 1
commit=$(git rev-parse --verify --quiet "$revision^{commit}") ||
    fail "no commit $revision here; a release is made in a checkout by git"
git diff --quiet HEAD -- 2>/dev/null || echo "dist: what is not committed is left out"
mkdir -p "$out" || exit 1
git -c tar.umask=0022 archive --format=tar --prefix="$name/" -o "$out/$name.tar" "$commit" ||
    fail "git archive failed"
gzip -9nf "$out/$name.tar" || fail "gzip failed"

archive=$(sha256sum "$out/$name.tar.gz" | cut -d' ' -f1)
time=$(TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd "$commit")
cat >"$out/$name.cdx.json" <<END
{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "timestamp": "$time",
    "component": {
      "type": "library",
      "bom-ref": "specbatch",
      "name": "libspecbatch",
      "version": "$version",
      "description": "Exact batch speculative decoding, as a C library (commit $commit)",
      "hashes": [{"alg": "SHA-256", "content": "$archive"}],
      "licenses": [{"expression": "MIT AND Unicode-3.0"}]
    }
  },
  "components": [
    {
      "type": "library",
      "bom-ref": "yajl",
      "name": "yajl",
      "version": "2",
      "scope": "required",
      "description": "Parses JSON; version 2 or later, not included",
      "licenses": [{"license": {"id": "ISC"}}]
    },
    {
      "type": "library",
      "bom-ref": "cuda",
      "name": "CUDA",
      "scope": "optional",
      "description": "Driver, cuBLASLt, cuDNN and NVRTC, loaded where they are; not included",
      "licenses": [{"license": {"name": "NVIDIA CUDA Toolkit EULA"}}]
    },
    {
      "type": "data",
      "bom-ref": "ucd",
      "name": "Unicode Character Database",
      "version": "16.0.0",
      "scope": "required",
      "description": "src/text/unicode_tables.c is made of it, and test/data/unicode",
      "licenses": [{"license": {"id": "Unicode-3.0"}}]
    },
    {
      "type": "machine-learning-model",
      "bom-ref": "demo",
      "name": "Demo pair (examples/demo)",
      "scope": "excluded",
      "description": "Weights trained for this project; used by the demo and by tests",
      "licenses": [{"license": {"id": "MIT"}}]
    },
    {
      "type": "data",
      "bom-ref": "spec-bench",
      "name": "Spec-Bench, 60 questions (test/data/prompts)",
      "scope": "excluded",
      "description": "Prompts of make paper",
      "licenses": [{"license": {"id": "Apache-2.0"}}]
    }
  ],
  "dependencies": [
    {"ref": "specbatch", "dependsOn": ["yajl", "cuda", "ucd"]}
  ]
}
END
(cd "$out" && sha256sum "$name.tar.gz" "$name.cdx.json" >"$name.sha256") || exit 1
ls -l "$out"/$name.*
