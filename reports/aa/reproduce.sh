#!/bin/sh
# Makes the report of the study aa again. Run it in an empty folder or a checkout.
git checkout a6878a83fba6
mkdir -p ablations
cat > ablations/aa.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# A/A study: does attnlab report differences between identical variants? Dense attention runs under five names.
# `again draws=0` has the same initial weights as `dense` for each seed; the others have their own initial weights from the
# same distribution. A verdict of better or worse would be false; about one such study in twenty has one.
study: aa

imports: [again.py]

base:
  task: {name: pydocs, length: 64}
  position: learned
  model: {dim: 32, depth: 1, heads: 2}
  train: {steps: 60, batch_size: 8, lr: 5e-3, warmup: 6}
  evaluate: {valid_limit: 1_000, test_limit: 10_000}
  machine: {device: cpu, threads: 1}     # the same numbers on every machine

grid:
  variant:
    - dense
    - {name: again, draws: 0}
    - {name: again, draws: 1}
    - {name: again, draws: 2}
    - {name: again, draws: 3}

seeds: [0, 1, 2, 3, 4, 5]
baseline: {variant: dense}
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/aa.yaml --workers 2 --no-report
attnlab report aa
