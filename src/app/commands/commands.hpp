#pragma once

#include "src/app/job/command_line.hpp"

/// Functions of the commands. Each returns the exit code. Throws Error.
namespace trireme::app {

// Collective, on every rank of a job.
int corpus_clean_command(const CommandLine& line);
int corpus_overlap_command(const CommandLine& line);
int corpus_build_command(const CommandLine& line);
int corpus_verify_command(const CommandLine& line);
int train_command(const CommandLine& line);
int eval_command(const CommandLine& line);
int finetune_command(const CommandLine& line);
int generate_command(const CommandLine& line);
int checkpoint_reshard_command(const CommandLine& line);
int checkpoint_export_command(const CommandLine& line);
int checkpoint_import_command(const CommandLine& line);
int selftest_command(const CommandLine& line);
int info_command(const CommandLine& line);

// On one process.
int corpus_inspect_command(const CommandLine& line);
int corpus_merge_command(const CommandLine& line);
int corpus_split_command(const CommandLine& line);
int corpus_sample_command(const CommandLine& line);
int corpus_samples_command(const CommandLine& line);
int corpus_import_command(const CommandLine& line);
int corpus_export_command(const CommandLine& line);
int tokenizer_train_command(const CommandLine& line);
int tokenizer_encode_command(const CommandLine& line);
int tokenizer_decode_command(const CommandLine& line);
int checkpoint_inspect_command(const CommandLine& line);
int checkpoint_verify_command(const CommandLine& line);
int report_command(const CommandLine& line);
int completion_command(const CommandLine& line);
int man_command(const CommandLine& line);
int megatron_command(const CommandLine& line);
int plan_command(const CommandLine& line);

}  // namespace trireme::app
