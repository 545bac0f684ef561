#!/bin/sh
# Makes the report of the study qk-norm-fresh-cpu again. Run it in an empty folder or a checkout.
git checkout 3c42eceb7bce
mkdir -p ablations
cat > ablations/qk-norm-fresh-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Twelve recipes in which the effect of normalized queries and keys was predicted before they were run: each recipe of
# qk-norm-enwik8-cpu.yaml has a predicted effect (the main effect of qk_norm and its five interactions), and these twelve are evenly
# spaced in the order of the 32 predictions. Both cells of each pair have seeds that the factorial did not use.
# reports/claims/qk-norm-predictions.csv has the predictions with their 95 % intervals.
study: qk-norm-fresh-cpu
question: Are the effects of normalized queries and keys in twelve new recipes those that the factorial predicts?

base:
  task: {name: enwik8, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 4, lr: 4e-3, warmup: 0.1, precision: fp32}
  evaluate: {batch_size: 32, valid_limit: 16_384, test_limit: 65_536}
  machine: {device: cpu, threads: 1, reuse_memory: true}

grid:
  recipe:
    learned+sharp+lower_rate: {position: learned, with: [{name: temperature, value: 0.3333, learned: false}], train.lr: 1e-3}
    learned+sharp+longer+lower_rate: {position: learned, with: [{name: temperature, value: 0.3333, learned: false}], train.steps: 900, train.lr: 1e-3}
    sharp+lower_rate: {with: [{name: temperature, value: 0.3333, learned: false}], train.lr: 1e-3}
    learned+longer+lower_rate: {position: learned, train.steps: 900, train.lr: 1e-3}
    learned+lower_rate+narrow: {position: learned, train.lr: 1e-3, model.heads: 16}
    learned+longer: {position: learned, train.steps: 900}
    sharp+lower_rate+narrow: {with: [{name: temperature, value: 0.3333, learned: false}], train.lr: 1e-3, model.heads: 16}
    sharp+longer: {with: [{name: temperature, value: 0.3333, learned: false}], train.steps: 900}
    sharp+narrow: {with: [{name: temperature, value: 0.3333, learned: false}], model.heads: 16}
    learned+longer+narrow: {position: learned, train.steps: 900, model.heads: 16}
    narrow: {model.heads: 16}
    longer+narrow: {train.steps: 900, model.heads: 16}
  norm:
    none: {with: []}
    qk_norm: {with: [qk_norm]}

seeds: 10-12
baseline: {norm: none}
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/qk-norm-fresh-cpu.yaml --workers 2 --no-report
attnlab report qk-norm-fresh-cpu
