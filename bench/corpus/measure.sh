#!/bin/bash
# usage: bench/corpus/measure.sh FILE COMMAND...
# Runs a command and adds a line to FILE: the peaks of its resident memory in KiB, all of it (as the kernel counts), then
# of anonymous memory, and of pages of files and shared memory, as seen some fifty times a second. Its exit code is the
# command's.
"${@:2}" &
pid=$!
exec {never}<> <(:)
all=0 anonymous=0 files=0
while :; do
  ended=1 shared=0
  while read -r name value _; do
    case $name in
      State:) [ "$value" = Z ] || ended=0 ;;
      VmHWM:) all=$((value > all ? value : all)) ;;
      RssAnon:) anonymous=$((value > anonymous ? value : anonymous)) ;;
      RssFile:) shared=$value ;;
      RssShmem:) shared=$((shared + value)) ;;
    esac
  done 2>/dev/null <"/proc/$pid/status"
  files=$((shared > files ? shared : files))
  [ $ended = 1 ] && break
  read -rt 0.02 -u "$never"
done
wait $pid
code=$?
echo "$all $anonymous $files" >>"$1"
exit $code
