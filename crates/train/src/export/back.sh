#!/usr/bin/env bash
# Evaluates the start and every checkpoint by config.toml, and compares the last with the start.{% if trainer == "trl" %} A checkpoint's name counts updates.{% endif %}
set -euo pipefail
cd "$(dirname "$0")"
MODEL=${MODEL:-{{ model }}}
RUN=${RUN:-run}
fgrpo eval config.toml --model "$MODEL"{% if full %} --full{% endif %} --out eval/start
last=
for checkpoint in $(printf '%s\n' "$RUN"/{% if trainer == "trl" %}checkpoint-*{% else %}exports/global_step_*/policy{% endif %} | sort -V); do
    last=eval/$(basename "${checkpoint%/policy}")
    fgrpo eval config.toml --model {% if lora %}"$MODEL" --adapter {% endif %}"$checkpoint"{% if full %} --full{% endif %} --out "$last"
done
fgrpo compare eval/start "$last" -k {{ k | join(",") }}
{%- if row %}

# The paper's nine benchmarks with 1,024 samples per problem, for the last of these checkpoints. DATA is the folder of their files;
# `fgrpo eval --suite paper --data-root "$DATA" --dry-run` lists them, with the places to get them from.
if [ -n "${DATA:-}" ]; then
    fgrpo eval --suite paper --data-root "$DATA" --models "{{ row[1] }}=$checkpoint" --out paper
    fgrpo paper {{ row[0] }} --from paper
fi
{%- endif %}
