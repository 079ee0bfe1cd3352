#!/bin/sh
# Makes Debian packages of a release: deb.sh VERSION DIST FOLDER takes the archive that dist.sh left
# in DIST and leaves the packages in FOLDER; `make deb` calls it. lintian has to find nothing.
#
# Debian's rules want the folder `debian` at the top of the sources, but a release serves all
# systems alike. So pkgconfig/debian is put there here, and is the packages' only own part. Their
# revision 0upstream1 is older than any that Debian itself would give them.
version=$1
dist=$2
out=$3
name=specbatch-$version

cd "$(dirname "$0")/.." || exit 1
for tool in dpkg-buildpackage dh lintian; do
    command -v $tool >/dev/null 2>&1 && continue
    echo "deb: $tool is missing (Debian: apt-get install dpkg-dev debhelper lintian)" >&2
    exit 1
done
rm -rf "$out" && mkdir -p "$out" && cp "$dist/$name.tar.gz" "$out/specbatch_$version.orig.tar.gz" &&
    tar -xzf "$dist/$name.tar.gz" -C "$out" || exit 1
root=$PWD
cd "$out/$name" && cp -R pkgconfig/debian debian || exit 1
# As old as the release: a date of today would make each build another one.
sed -i "s/@VERSION@/$version/; s/@DATE@/$(date -R -u -r Makefile)/" debian/changelog
echo "deb: dpkg-buildpackage, with its output in ${out#"$root"/}/build.log"
if ! env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL dpkg-buildpackage -us -uc >../build.log 2>&1; then
    tail -n 20 ../build.log
    exit 1
fi
cd .. && rm -rf "$name" && lintian --fail-on error,warning --tag-display-limit 0 ./*.changes &&
    ls -l ./*.deb
