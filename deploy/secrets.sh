#!/bin/sh
# Makes the secrets of docker-compose.yml in secrets/, each once; a secret that is there stays.
# Only you can enter the folder. The files in it can be read, because containers read them as users of their own.
set -eu
folder=${1:-"$(dirname "$0")/../secrets"}
mkdir -p "$folder"
chmod 700 "$folder"
for name in secret_key broker_password database_password metrics_token; do
    [ -s "$folder/$name" ] && continue
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$folder/$name.new"
    chmod 444 "$folder/$name.new"
    mv "$folder/$name.new" "$folder/$name"
    echo "made $folder/$name"
done
