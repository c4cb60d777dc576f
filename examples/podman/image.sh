#!/bin/sh
# Makes the image localhost/hutch-example out of this machine's busybox, which has to be a static one: on Debian and
# Ubuntu the package busybox-static. No registry and no network is asked. Rootless and rootful Podman have images of
# their own, so run it as the user who runs hutch.
set -eu
cd / # podman's helpers drop files where they are
image=localhost/hutch-example
if podman image exists "$image"; then
	exit 0
fi
busybox=$(command -v busybox) || { echo "image.sh: busybox is missing: apt-get install busybox-static" >&2 && exit 1; }
if ldd "$busybox" >/dev/null 2>&1; then
	echo "image.sh: $busybox needs libraries, which the image would lack: apt-get install busybox-static" >&2
	exit 1
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/etc" "$root/tmp"
cp "$busybox" "$root/bin/busybox"
"$busybox" --list | while read -r applet; do
	[ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
tar -C "$root" -c . | podman import --change 'ENV PATH=/bin' - "$image"
