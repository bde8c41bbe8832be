#!/bin/sh
# Makes a certificate authority and the certificates of the leaf links, for development only: they expire
# after 30 days and their keys lie unprotected in the directory. Run again, it keeps what is still valid
# for a day and renews the rest.
#
#     dev-certs.sh DIRECTORY [more host names of the core ...]
set -eu

if [ $# -lt 1 ]; then
  echo "usage: dev-certs.sh DIRECTORY [core host name ...]" >&2
  exit 64
fi
command -v openssl >/dev/null 2>&1 || { echo "dev-certs.sh: openssl is needed and not installed" >&2; exit 69; }

dir=$1
shift
mkdir -p "$dir"
umask 077
san="DNS:localhost,IP:127.0.0.1,DNS:core,DNS:core-1,DNS:core-2,DNS:core-3"
for host in "$@"; do san="$san,DNS:$host"; done

# Valid for a day more, made by the authority that is there now, and naming every host asked for?
good() {
  [ -s "$dir/$1.key" ] && openssl x509 -in "$dir/$1.pem" -noout -checkend 86400 >/dev/null 2>&1 &&
    openssl verify -CAfile "$dir/ca.pem" "$dir/$1.pem" >/dev/null 2>&1 &&
    { [ "$1" != core ] || [ "$(cat "$dir/core.san" 2>/dev/null)" = "$san" ]; }
}

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

if ! good ca; then
  new_key "$dir/ca.key"
  openssl req -x509 -new -sha256 -key "$dir/ca.key" -days 30 -subj "/CN=saga development CA" \
    -addext "basicConstraints=critical,CA:true" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -out "$dir/ca.pem"
fi

for name in core leaf-eu leaf-asia; do
  good "$name" && continue
  new_key "$dir/$name.key"
  openssl req -new -sha256 -key "$dir/$name.key" -subj "/CN=$name" -out "$dir/$name.csr"
  {
    echo "basicConstraints=CA:false"
    echo "keyUsage=critical,digitalSignature"
    if [ "$name" = core ]; then
      echo "extendedKeyUsage=serverAuth,clientAuth"
      echo "subjectAltName=$san"
    else
      echo "extendedKeyUsage=clientAuth"
      echo "subjectAltName=DNS:$name"
    fi
  } >"$dir/$name.ext"
  openssl x509 -req -sha256 -in "$dir/$name.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial \
    -days 30 -extfile "$dir/$name.ext" -out "$dir/$name.pem" 2>/dev/null
  rm -f "$dir/$name.csr" "$dir/$name.ext"
  if [ "$name" = core ]; then echo "$san" >"$dir/core.san"; fi
done
