#!/bin/sh
# Makes the report of the study critical-components-cpu again. Run it in an empty folder or a checkout.
git checkout 05450605fa0b
mkdir -p ablations
cat > ablations/critical-components-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# What are the critical components of a transformer? Seven on/off factors in a 16-cell fraction of their 128 combinations. "On"
# takes a component away, so a positive effect is the price of its absence in bits per byte. Every main effect is estimated from
# all 80 runs: 40 with the component and 40 without it. critical-components-imdb-cpu asks the same of reviews. Effects are those
# of small models early in training, with one learning rate for all cells, chosen for the complete model.
study: critical-components-cpu
question: Which components can a small transformer of bytes not do without?

base:
  task: {name: enwik8, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, lr: 4e-3, warmup: 0.1, weight_decay: 0.01, precision: fp32}
  evaluate: {valid_limit: 65536, test_limit: 131072}
  machine: {device: cpu, threads: 1, reuse_memory: true}  # the same numbers on every machine, with a GPU or without

factors:
  no_residual: {model.residual: none}    # on: these fields are set; off: the base
  no_norm: {model.norm_type: none}
  no_feed_forward: {model.ff_mult: 0}
  no_positions: {position: none}
  one_head: {model.heads: 1}
  no_scale: {with: [{name: temperature, scaled: false, learned: false}]}
  no_wo: {variant: no_wo}
design: {name: fractional, cells: 16}    # resolution IV: main effects are clear of interactions of two factors

seeds: 0-4
metric: bits_per_byte
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/critical-components-cpu.yaml --workers 1
mkdir -p ablations
cat > ablations/critical-components-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# What are the critical components of a transformer? Seven on/off factors in a 16-cell fraction of their 128 combinations. "On"
# takes a component away, so a positive effect is the price of its absence in bits per byte. Every main effect is estimated from
# all 48 runs: 24 with the component and 24 without it. critical-components-imdb-cpu asks the same of reviews. Effects are those
# of small models early in training, with one learning rate for all cells, chosen for the complete model.
study: critical-components-cpu
question: Which components can a small transformer of bytes not do without?

base:
  task: {name: enwik8, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, lr: 4e-3, warmup: 0.1, weight_decay: 0.01, precision: fp32}
  evaluate: {valid_limit: 65536, test_limit: 131072}
  machine: {device: cpu, threads: 1, reuse_memory: true}  # the same numbers on every machine, with a GPU or without

factors:
  no_residual: {model.residual: none}    # on: these fields are set; off: the base
  no_norm: {model.norm_type: none}
  no_feed_forward: {model.ff_mult: 0}
  no_positions: {position: none}
  one_head: {model.heads: 1}
  no_scale: {with: [{name: temperature, scaled: false, learned: false}]}
  no_wo: {variant: no_wo}
design: {name: fractional, cells: 16}    # resolution IV: main effects are clear of interactions of two factors

seeds: 0-2
metric: bits_per_byte
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/critical-components-cpu.yaml --workers 1
mkdir -p ablations
cat > ablations/critical-components-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# What are the critical components of a transformer? Seven on/off factors in a 16-cell fraction of their 128 combinations. "On"
# takes a component away, so a positive effect is the price of its absence in bits per byte. Every main effect is estimated from
# all 48 runs: 24 with the component and 24 without it. critical-components-imdb-cpu asks the same of reviews. Effects are those
# of small models early in training, with one learning rate for all cells, chosen for the complete model.
study: critical-components-cpu
question: Which components can a small transformer of bytes not do without?

base:
  task: {name: enwik8, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, lr: 4e-3, warmup: 0.1, weight_decay: 0.01, precision: fp32}
  evaluate: {valid_limit: 65536, test_limit: 131072}
  machine: {device: cpu, threads: 1, reuse_memory: true}  # the same numbers on every machine, with a GPU or without

factors:
  no_residual: {model.residual: none}    # on: these fields are set; off: the base
  no_norm: {model.norm_type: none}
  no_feed_forward: {model.ff_mult: 0}
  no_positions: {position: none}
  one_head: {model.heads: 1}
  no_scale: {with: [{name: temperature, scaled: false, learned: false}]}
  no_wo: {variant: no_wo}
design: {name: fractional, cells: 16}    # resolution IV: main effects are clear of interactions of two factors

seeds: 0-4
metric: bits_per_byte
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/critical-components-cpu.yaml --workers 2
mkdir -p ablations
cat > ablations/critical-components-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# What are the critical components of a transformer? Seven on/off factors in a 16-cell fraction of their 128 combinations. "On"
# takes a component away, so a positive effect is the price of its absence in bits per byte. Every main effect is estimated from
# all 80 runs: 40 with the component and 40 without it. critical-components-imdb-cpu asks the same of reviews. Effects are those
# of small models early in training, with one learning rate for all cells, chosen for the complete model.
study: critical-components-cpu
question: Which components can a small transformer of bytes not do without?

base:
  task: {name: enwik8, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, lr: 4e-3, warmup: 0.1, weight_decay: 0.01, precision: fp32}
  evaluate: {valid_limit: 65536, test_limit: 131072}
  machine: {device: cpu, threads: 1, reuse_memory: true}  # the same numbers on every machine, with a GPU or without

factors:
  no_residual: {model.residual: none}    # on: these fields are set; off: the base
  no_norm: {model.norm_type: none}
  no_feed_forward: {model.ff_mult: 0}
  no_positions: {position: none}
  one_head: {model.heads: 1}
  no_scale: {with: [{name: temperature, scaled: false, learned: false}]}
  no_wo: {variant: no_wo}
design: {name: fractional, cells: 16}    # resolution IV: main effects are clear of interactions of two factors

seeds: 0-4
metric: bits_per_byte
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/critical-components-cpu.yaml --workers 2
mkdir -p ablations
cat > ablations/critical-components-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# What are the critical components of a transformer? Seven on/off factors in a 16-cell fraction of their 128 combinations. "On"
# takes a component away, so a positive effect is the price of its absence in bits per byte. Every main effect is estimated from
# all 80 runs: 40 with the component and 40 without it. critical-components-imdb-cpu asks the same of reviews. Effects are those
# of small models early in training, with one learning rate for all cells, chosen for the complete model.
study: critical-components-cpu
question: Which components can a small transformer of bytes not do without?

base:
  task: {name: enwik8, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, lr: 4e-3, warmup: 0.1, weight_decay: 0.01, precision: fp32}
  evaluate: {valid_limit: 65536, test_limit: 131072}
  machine: {device: cpu, threads: 1, reuse_memory: true}  # the same numbers on every machine, with a GPU or without

factors:
  no_residual: {model.residual: none}    # on: these fields are set; off: the base
  no_norm: {model.norm_type: none}
  no_feed_forward: {model.ff_mult: 0}
  no_positions: {position: none}
  one_head: {model.heads: 1}
  no_scale: {with: [{name: temperature, scaled: false, learned: false}]}
  no_wo: {variant: no_wo}
design: {name: fractional, cells: 16}    # resolution IV: main effects are clear of interactions of two factors

seeds: 0-13
metric: bits_per_byte
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/critical-components-cpu.yaml --workers 2
mkdir -p ablations
cat > ablations/critical-components-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# What are the critical components of a transformer? Seven on/off factors in a 16-cell fraction of their 128 combinations. "On"
# takes a component away, so a positive effect is the price of its absence in bits per byte. Every main effect is estimated from
# all 80 runs: 40 with the component and 40 without it. critical-components-imdb-cpu asks the same of reviews. Effects are those
# of small models early in training, with one learning rate for all cells, chosen for the complete model.
study: critical-components-cpu
question: Which components can a small transformer of bytes not do without?

base:
  task: {name: enwik8, length: 128}
  variant: dense
  position: rotary
  model: {dim: 64, depth: 2, heads: 4}
  train: {steps: 300, batch_size: 8, lr: 4e-3, warmup: 0.1, weight_decay: 0.01, precision: fp32}
  evaluate: {valid_limit: 65536, test_limit: 131072}
  machine: {device: cpu, threads: 1, reuse_memory: true}  # the same numbers on every machine, with a GPU or without

factors:
  no_residual: {model.residual: none}    # on: these fields are set; off: the base
  no_norm: {model.norm_type: none}
  no_feed_forward: {model.ff_mult: 0}
  no_positions: {position: none}
  one_head: {model.heads: 1}
  no_scale: {with: [{name: temperature, scaled: false, learned: false}]}
  no_wo: {variant: no_wo}
design: {name: fractional, cells: 16}    # resolution IV: main effects are clear of interactions of two factors

seeds: 0-32
metric: bits_per_byte
margin: 0.05
END_OF_STUDY_FILE
attnlab run ablations/critical-components-cpu.yaml --workers 2
attnlab report critical-components-cpu
