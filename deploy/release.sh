#!/usr/bin/env bash
# The files of a release in dist/: wheel, sdist, SBOM (CycloneDX) and SHA256SUMS. `make dist` runs it.
#
# The same commit gives the same bytes: build tools are locked with their hashes, and every time in the archives is that
# of the commit. The SBOM lists what the image holds, which is what requirements.lock pins.
set -euo pipefail
cd "$(dirname "$0")/.."

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH PIP_DISABLE_PIP_VERSION_CHECK=1
out=${1:-dist}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT

echo "installing the build tools of requirements-build.lock"
${PYTHON:-python3} -m venv "$tools/build"
"$tools/build/bin/pip" install --quiet --no-compile --require-hashes --only-binary :all: -r requirements-build.lock
rm -rf "$out"
"$tools/build/bin/python" -m hatchling build -d "$out"

if [ -z "${WITHOUT_SBOM:-}" ]; then
  echo "installing what requirements.lock pins, for the SBOM"
  ${PYTHON:-python3} -m venv --without-pip "$tools/image"
  "$tools/build/bin/pip" --python "$tools/image/bin/python" install --quiet --no-compile --require-hashes \
    --only-binary :all: -r requirements.lock
  "$tools/build/bin/pip" --python "$tools/image/bin/python" install --quiet --no-compile --no-deps "$out"/*.whl
  "$tools/build/bin/pip" install --quiet --no-compile cyclonedx-bom
  "$tools/build/bin/cyclonedx-py" environment "$tools/image/bin/python" --pyproject pyproject.toml \
    --output-reproducible --of JSON -o "$out/compaction-proxy.cdx.json"
fi

(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum > SHA256SUMS && cat SHA256SUMS)
