#!/usr/bin/env bash
# Runs the steps of the Dockerfile without Docker, since images cannot be built everywhere.
#
# The Dockerfile itself is turned into a shell script, so that the two cannot drift apart; the script runs in an empty
# environment (env -i) with ROOT, the start of every path in the Dockerfile, set to a temporary folder. It needs
# python3 on the usual path. What only Docker can do (the base image, USER, HEALTHCHECK) is not tried.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What COPY means in the script that translate() writes. Sources lie in the folder CONTEXT.
prelude() {
  cat <<'PRELUDE'
set -eu
copy_from_context() { # SOURCE... DESTINATION; of a folder Docker copies what is inside
  destination=${*: -1}
  mkdir -p "$destination"
  for source in "${@:1:$#-1}"; do
    if [ -d "$CONTEXT/$source" ]; then source=$source/.; fi
    cp -r "$CONTEXT/$source" "$destination"
  done
}
copy_from_stage() { # SOURCE DESTINATION; all stages share one ROOT, so there is nothing to copy
  [ -e "$1" ] && [ "$1" = "$2" ] || { echo "COPY --from: $1 is missing, or differs from $2" >&2; exit 1; }
}
PRELUDE
}

# Instructions, one a line: comments and empty lines gone, continued lines joined.
instructions() {
  sed -e '/^[[:space:]]*#/d' -e '/^[[:space:]]*$/d' Dockerfile |
    sed -e ':join' -e '/\\$/{N;s/\\\n[[:space:]]*//;bjoin' -e '}'
}

unknown() {
  echo "Dockerfile: tools/docker_steps.sh does not know this form: $1" >&2
  return 1
}

# The shell command for one instruction: translate KEYWORD ARGUMENTS.
translate() {
  case "$1 $2" in
    "RUN ["* | "RUN <<"* | "RUN --"*) unknown "$1 $2" ;;
    "FROM "*) echo "cd \"\$ROOT\"" ;;
    "ARG "*=*) echo "export ${2%%=*}=\"\${${2%%=*}-${2#*=}}\"" ;;
    "ENV "*=*) echo "export $2" ;;
    "WORKDIR "*) echo "mkdir -p \"$2\"; cd \"$2\"" ;;
    "COPY --from="*) echo "copy_from_stage ${2#* }" ;;
    "COPY "*) echo "copy_from_context $2" ;;
    "RUN "*) printf 'echo %q\nsh -ec %q\n' "RUN $2" "$2" ;;
    "USER "* | "EXPOSE "* | "HEALTHCHECK "* | "ENTRYPOINT "* | "CMD "*) ;;
    *) unknown "$1 $2" ;;
  esac
}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/home"

{
  prelude
  instructions | while read -r keyword arguments; do translate "$keyword" "$arguments"; done
  echo 'nnhal --help' # found by the image's own PATH
} >"$root/steps"

env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$root/home" ROOT="$root" CONTEXT="$PWD" bash "$root/steps"
echo "the Dockerfile's steps work"
