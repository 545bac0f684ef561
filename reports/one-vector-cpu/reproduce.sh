#!/bin/sh
# Makes the report of the study one-vector-cpu again. Run it in an empty folder or a checkout.
git checkout e853de4d72ad
mkdir -p ablations
cat > ablations/one-vector-cpu.yaml <<'END_OF_STUDY_FILE'
# yaml-language-server: $schema=study.schema.json
# What did attention replace? Before Bahdanau et al. (2015), the encoder handed one vector to the decoder (Cho et al. 2014;
# Sutskever et al. 2014). Descriptions of images from German to English, on two cores; for other sentences, replace the task.
#
# `gru_vector` is a recurrent encoder-decoder without attention, `gru_attention` has attention between encoder and decoder alone,
# and `transformer_vector` is a transformer in which the decoder sees the mean of the encoder's output. Cho et al. (2014,
# arXiv:1409.1259) found that translations from one vector get worse with the length of the sentence.
#
# The search tries the learning rates 1e-3, 2e-3, 4e-3 and 8e-3 in each cell.
study: one-vector-cpu
question: How much does an encoder-decoder lose when the decoder sees one vector of the source?

base:
  task: {name: multi30k, source: de, target: en, vocabulary: 4000, label_smoothing: 0.1}
  position: sinusoidal
  model: {dim: 128, depth: 2, heads: 4, ff_mult: 4, dropout: 0.1, tie_embeddings: true}
  train: {epochs: 4, batch_size: 128, warmup: 200, precision: auto}
  evaluate: {valid_limit: 256}
  machine: {device: cpu, threads: 1, matmul_precision: medium, reuse_memory: true}

grid:
  encoder_decoder:
    transformer: {variant: dense}
    transformer_vector: {variant: dense, model.encoder_pool: mean}
    gru_attention: {variant: dense, model.encoder.variant: gru, model.decoder.variant: gru}
    gru_vector: {variant: dense, model.encoder.variant: gru, model.decoder.variant: gru, model.encoder_pool: mean}

search:
  trials: 4
  space: {train.lr: {low: 1e-3, high: 1.6e-2, log: true}}
  sampler: {name: QMCSampler, scramble: false}
confirm: {seeds: [100, 101, 102]}
baseline: {encoder_decoder: transformer}
margin: 0.5
END_OF_STUDY_FILE
attnlab run ablations/one-vector-cpu.yaml --workers 2
attnlab report one-vector-cpu
