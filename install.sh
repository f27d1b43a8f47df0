#!/bin/sh
# Installs the program of a release for this system, once its checksum has been compared.
#
#   sh install.sh                              # the newest release, into ~/.local/bin
#   VERSION=v0.1.0 TO=/usr/local/bin sh install.sh
#
# RELEASES is where the archives lie (default: the project's releases).
set -eu
releases=${RELEASES:-https://github.com/fgrpo/fgrpo/releases}
to=${TO:-$HOME/.local/bin}

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

case "$(uname -s) $(uname -m)" in
    "Linux x86_64") target=x86_64-unknown-linux-gnu ;;
    "Linux aarch64") target=aarch64-unknown-linux-gnu ;;
    "Darwin arm64") target=aarch64-apple-darwin ;;
    "Darwin x86_64") target=x86_64-apple-darwin ;;
    *) fail "there is no program for $(uname -s) on $(uname -m); with Rust: cargo install --locked --path crates/cli" ;;
esac
if [ -z "${VERSION:-}" ]; then
    # The newest release is where this address leads to: .../tag/v0.1.0
    VERSION=$(curl -sSfI -o /dev/null -w '%{redirect_url}' "$releases/latest") || fail "no release was found at $releases"
    VERSION=${VERSION##*/}
    [ -n "$VERSION" ] || fail "no release was found at $releases"
fi

name=fgrpo-$VERSION-$target
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for file in "$name.tar.gz" "$name.tar.gz.sha256"; do
    curl -sSfL -o "$file" "$releases/download/$VERSION/$file" || fail "$releases/download/$VERSION/$file could not be downloaded"
done
if command -v sha256sum >/dev/null; then sum=$(sha256sum "$name.tar.gz"); else sum=$(shasum -a 256 "$name.tar.gz"); fi
[ "${sum%% *}" = "$(cut -d ' ' -f 1 "$name.tar.gz.sha256")" ] || fail "$name.tar.gz has another checksum than its .sha256 says; nothing was installed"
tar xzf "$name.tar.gz"
mkdir -p "$to"
# A program that runs can be replaced, but not written to.
cp "$name/fgrpo" "$to/.fgrpo.new"
chmod 755 "$to/.fgrpo.new"
mv "$to/.fgrpo.new" "$to/fgrpo"
echo "installed: $to/fgrpo, $("$to/fgrpo" --version)"
case ":$PATH:" in
    *":$to:"*) ;;
    *) echo "$to is not on PATH yet" ;;
esac
