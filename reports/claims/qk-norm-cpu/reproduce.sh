#!/bin/sh
# Makes the report of the study qk-norm-cpu again. Run it in an empty folder or a checkout.
git checkout c07bfd07730a
cat > N10-init.yaml <<'END_OF_STUDY_FILE'
study: qk-norm-cpu
question: What decides whether normalized queries and keys help?
base:
  task:
    name: pydocs
    length: 128
  variant: dense
  position: rotary
  model:
    dim: 64
    depth: 2
    heads: 4
  train:
    steps: 300
    batch_size: 4
    lr: 0.004
    warmup: 0.1
    precision: fp32
  machine:
    device: cpu
    threads: 1
    reuse_memory: true
factors:
  qk_norm:
    with:
    - qk_norm
  learned:
    position: learned
  small_init:
    model.initialization: gpt2
  longer:
    train.steps: 900
  lower_rate:
    train.lr: 0.001
  wider:
    model.dim: 128
    model.heads: 8
design:
  name: fractional
  cells: 32
seeds: 0-2
metric: bits_per_byte
margin: 0.02
claim:
  sentence: Normalized queries and keys help more when a model starts with small
    weights.
  source: a guess of this testbed, from two recipes in which their effect has 
    opposite signs
  effect: qk_norm × small_init
  direction: better
END_OF_STUDY_FILE
attnlab run N10-init.yaml
attnlab report qk-norm-cpu
