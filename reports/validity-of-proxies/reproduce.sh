#!/bin/sh
# Makes the report of the study validity-of-proxies again. Run it in an empty folder or a checkout.
git checkout 496c19011b77
mkdir -p ablations
cat > ablations/validity-of-proxies.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# Do verdicts at a small training budget hold at larger ones? Ten layers that mix a sequence, some nearly the same and some very
# different, in a small model of bytes, trained for 100, 300 and 900 steps. The report counts, over all pairs of layers, how often
# a verdict at a shorter training has the sign of the difference at a longer one.
#
# The learning rate is the same for all layers and lengths and was not tuned: the verdicts are those of this recipe, and a layer
# that needs another rate may rank differently at its own. The model is small (0.1 million parameters) and reads 0.05 to 0.46
# million of enwik8's 90 million training bytes: the answer is about these lengths, not about full training.
#
# The 90 runs took 17 minutes in all. To have the short trainings of all layers first, run it in three calls:
#
#   for steps in 100 300 900; do attnlab run ablations/validity-of-proxies.yaml --only train.steps=$steps --no-report; done
#   attnlab report validity-of-proxies
study: validity-of-proxies
question: Does a verdict at a small training budget keep its sign at a larger one?

base:
  task: {name: enwik8, length: 128}
  model: {dim: 64, depth: 2, heads: 4}
  train: {batch_size: 4, lr: 4e-3, warmup: 0.1, precision: fp32}
  evaluate: {batch_size: 32, valid_limit: 16_384, test_limit: 65_536}
  machine: {device: cpu, threads: 1, reuse_memory: true}

grid:
  mixer:
    dense: {variant: dense, position: rotary}
    qk_norm: {variant: {name: dense, with: qk_norm}, position: rotary}
    window: {variant: {name: dense, with: {name: window, size: 16}}, position: rotary}
    no_wo: {variant: no_wo, position: rotary}
    narrow: {variant: narrow, position: rotary}
    linear: {variant: linear, position: none}
    retention: {variant: retention, position: rotary}
    delta: {variant: {name: delta, short_conv: 0}, position: none}
    lstm: {variant: lstm, position: none}
    convolution: {variant: convolution, position: none}

over: {train.steps: [100, 300, 900]}
seeds: [0, 1, 2]
baseline: {mixer: dense}
metric: bits_per_byte
margin: 0.02
END_OF_STUDY_FILE
attnlab run ablations/validity-of-proxies.yaml --no-report --workers 1
attnlab report validity-of-proxies
