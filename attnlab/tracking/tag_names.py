"""The names of the tags of a study's experiment that several modules use."""

QUESTIONS_TAG = "attnlab.questions"  # experiment tag: the questions the study has asked, as JSON
DOUBLES_TAG = "attnlab.doubles"  # experiment tag: baselines that are doubles -> the cells that are run for them, as JSON
THREADS_TAG = "attnlab.threads"  # experiment tag: CPU threads of each run whose configuration leaves their number open
MACHINE_TAG = "attnlab.auto_machine"  # experiment tag: type of device -> field that is `auto` -> value and reason, as JSON
CHAIN_TAG = "attnlab.chain"  # of runs that start from a stage: the key of its configuration without seeds (`key_of_stage`)
STUDY_TAG = "attnlab.study"  # of experiments and runs: the study's name
