#!/bin/sh
# Makes the report of the study qk-norm-enwik8-cpu again. Run it in an empty folder or a checkout.
git checkout 28e382c194a6
cat > N10-sharp.yaml <<'END_OF_STUDY_FILE'
study: qk-norm-enwik8-cpu
question: What decides whether normalized queries and keys help on enwik8?
base:
  task:
    name: enwik8
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
  evaluate:
    batch_size: 32
    valid_limit: 16384
    test_limit: 65536
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
  sharp:
    with:
    - name: temperature
      value: 0.3333
      learned: false
  longer:
    train.steps: 900
  lower_rate:
    train.lr: 0.001
  narrow:
    model.heads: 16
design:
  name: fractional
  cells: 32
seeds: 0-3
metric: bits_per_byte
margin: 0.02
claim:
  sentence: Normalized queries and keys cost more when the logits of a model 
    start sharp.
  source: a guess of this testbed, because queries and keys of unit scale start 
    with logits three times as large
  effect: qk_norm × sharp
  direction: worse
END_OF_STUDY_FILE
attnlab run N10-sharp.yaml
attnlab report qk-norm-enwik8-cpu
