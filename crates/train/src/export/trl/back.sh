#!/usr/bin/env bash
# Evaluates the start and every checkpoint by config.toml, and compares the last with the start. A checkpoint's name counts updates.
set -euo pipefail
cd "$(dirname "$0")"
MODEL=${MODEL:-{{ model }}}
RUN=${RUN:-run}
fgrpo eval config.toml --model "$MODEL"{% if full %} --full{% endif %} --out eval/start
last=
for checkpoint in $(printf '%s\n' "$RUN"/checkpoint-* | sort -V); do
    last=eval/$(basename "$checkpoint")
    fgrpo eval config.toml --model {% if lora %}"$MODEL" --adapter {% endif %}"$checkpoint"{% if full %} --full{% endif %} --out "$last"
done
fgrpo compare eval/start "$last" -k {{ k | join(",") }}
