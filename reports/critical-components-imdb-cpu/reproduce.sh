#!/bin/sh
# Makes the report of the study critical-components-imdb-cpu again. Run it in an empty folder or a checkout.
git checkout 05450605fa0b
mkdir -p ablations
cat > ablations/critical-components-imdb-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# The factorial of critical-components-cpu on reviews: the same models and factors, with a classifier of words in front. A
# negative effect is the price of an absent component, in accuracy.
study: critical-components-imdb-cpu
question: Which components can a small transformer that classifies reviews not 
  do without?
base:
  task:
    name: imdb
    length: 128
    vocabulary: 10000
  variant: dense
  position: rotary
  model:
    dim: 64
    depth: 2
    heads: 4
  train:
    steps: 300
    batch_size: 8
    lr: 0.004
    warmup: 0.1
    weight_decay: 0.01
    precision: fp32
  evaluate:
    valid_limit: 1000
    test_limit: 2500
  machine:
    device: cpu
    threads: 1
    reuse_memory: true
factors:
  no_residual:
    model.residual: none
  no_norm:
    model.norm_type: none
  no_feed_forward:
    model.ff_mult: 0
  no_positions:
    position: none
  one_head:
    model.heads: 1
  no_scale:
    with:
    - name: temperature
      scaled: false
      learned: false
  no_wo:
    variant: no_wo
design:
  name: fractional
  cells: 16
seeds: 0-4
metric: accuracy
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/critical-components-imdb-cpu.yaml --workers 1
mkdir -p ablations
cat > ablations/critical-components-imdb-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# The factorial of critical-components-cpu on reviews: the same models and factors, with a classifier of words in front. A
# negative effect is the price of an absent component, in accuracy.
study: critical-components-imdb-cpu
question: Which components can a small transformer that classifies reviews not 
  do without?
base:
  task:
    name: imdb
    length: 128
    vocabulary: 10000
  variant: dense
  position: rotary
  model:
    dim: 64
    depth: 2
    heads: 4
  train:
    steps: 300
    batch_size: 8
    lr: 0.004
    warmup: 0.1
    weight_decay: 0.01
    precision: fp32
  evaluate:
    valid_limit: 1000
    test_limit: 2500
  machine:
    device: cpu
    threads: 1
    reuse_memory: true
factors:
  no_residual:
    model.residual: none
  no_norm:
    model.norm_type: none
  no_feed_forward:
    model.ff_mult: 0
  no_positions:
    position: none
  one_head:
    model.heads: 1
  no_scale:
    with:
    - name: temperature
      scaled: false
      learned: false
  no_wo:
    variant: no_wo
design:
  name: fractional
  cells: 16
seeds: 0-2
metric: accuracy
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/critical-components-imdb-cpu.yaml --workers 1
attnlab run ablations/critical-components-imdb-cpu.yaml --workers 2
mkdir -p ablations
cat > ablations/critical-components-imdb-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# The factorial of critical-components-cpu on reviews: the same models and factors, with a classifier of words in front. A
# negative effect is the price of an absent component, in accuracy.
study: critical-components-imdb-cpu
question: Which components can a small transformer that classifies reviews not 
  do without?
base:
  task:
    name: imdb
    length: 128
    vocabulary: 10000
  variant: dense
  position: rotary
  model:
    dim: 64
    depth: 2
    heads: 4
  train:
    steps: 300
    batch_size: 8
    lr: 0.004
    warmup: 0.1
    weight_decay: 0.01
    precision: fp32
  evaluate:
    valid_limit: 1000
    test_limit: 2500
  machine:
    device: cpu
    threads: 1
    reuse_memory: true
factors:
  no_residual:
    model.residual: none
  no_norm:
    model.norm_type: none
  no_feed_forward:
    model.ff_mult: 0
  no_positions:
    position: none
  one_head:
    model.heads: 1
  no_scale:
    with:
    - name: temperature
      scaled: false
      learned: false
  no_wo:
    variant: no_wo
design:
  name: fractional
  cells: 16
seeds: 0-11
metric: accuracy
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/critical-components-imdb-cpu.yaml --workers 2
attnlab report critical-components-imdb-cpu
