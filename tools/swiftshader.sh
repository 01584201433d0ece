#!/bin/sh
# swiftshader.sh FOLDER: unpacks SwiftShader, a Vulkan driver on the CPU that has no optional features, from Debian's
# package chromium-common into FOLDER. Needs apt, no rights.
set -eu
folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d "$folder/unpack.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -q chromium-common
dpkg-deb --fsys-tarfile chromium-common_*.deb |
  tar -x ./usr/lib/chromium/libvk_swiftshader.so ./usr/lib/chromium/vk_swiftshader_icd.json
mv usr/lib/chromium/libvk_swiftshader.so usr/lib/chromium/vk_swiftshader_icd.json "$folder"
