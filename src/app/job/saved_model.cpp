#include "src/app/job/saved_model.hpp"

#include <fmt/ranges.h>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/posix/folder.hpp"
#include "src/app/job/kernel_test.hpp"
#include "src/app/job/memory_report.hpp"
#include "src/app/job/task_classes.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/train/state_tensors.hpp"

namespace trireme::app {

namespace {

/// Returns the name of step `step` in `store`. Throws CheckpointError if it does not exist, or `path` is the folder of
/// another step.
std::string find_step(checkpoint::Store& store, const std::string& path, const std::string& folder, std::int64_t step) {
  std::string name = store.step_name(step);
  TRIREME_CHECK(folder.empty() || folder == name, CheckpointError,
                "--ckpt-step {}: {} is the folder of {}. Try --load with the folder above it", step, path, folder);
  std::string others;
  for (const checkpoint::StepEntry& entry : store.steps()) {
    if (entry.name == name) return name;
    others += fmt::format("{}{}", others.empty() ? "" : ", ", entry.step);
  }
  throw CheckpointError("there is no checkpoint of --ckpt-step {} in {}; its steps are: {}", step, path,
                        others.empty() ? "none" : others);
}

}  // namespace

OpenCheckpoint open_checkpoint(Communicator& world, const std::string& path, const OpenOptions& options) {
  OpenCheckpoint result;
  io::CheckpointLocation location;
  collectively(world, [&] {
    const bool is_absent = options.optional && !io::is_there(path);
    location = is_absent ? io::CheckpointLocation{path, {}} : io::find_checkpoint(path);
    result.store = std::make_unique<io::CheckpointStore>(location.root);
    if (options.step) location.step = find_step(*result.store, path, location.step, *options.step);
  });
  if (options.optional && location.step.empty() && !checkpoint::has_checkpoint(*result.store, world)) {
    if (options.warns && world.rank() == 0)
      log::warn("there is no checkpoint in {}: the run starts from scratch", path);
    return {};
  }
  result.reader =
      checkpoint::open_checkpoint(*result.store, world, location.step, options.verification, {}, options.kept_bytes);
  collectively(world, [&] {
    const checkpoint::Manifest& manifest = result.reader->manifest();
    check_attributes(manifest.attributes, manifest.step);
    result.description = checkpoint::read_description(*result.reader);
  });
  if (options.logs) log::info("loading {}: iteration {}", result.reader->description(), result.description.step);
  return result;
}

void SavedModelOptions::declare(Options& options) {
  options.section("Model");
  options.add("load", &load, "DIR", "Folder of checkpoints, or one step's folder.");
  options.add("ckpt-step", &step, "N", "The checkpoint of this iteration instead of the newest.", at_least(0));
  options.add_choice("dtype", &dtype, training_types, "Type of weights and activations; default the training type.");
  options.add_flag("bf16", &bf16, "The same as --dtype bf16.");
  options.add_flag("fp16", &fp16, "The same as --dtype fp16.");
  tokenizer.declare(options);
  options.add_flag("no-bos", &without_bos,
                   "Put nothing before texts. By default they begin with what the model's tokenizer puts there, such "
                   "as the BOS of Llama 3.");
  options.require({"load"});
  grid.declare(options);
  device.declare(options);
  declare_no_selftest(options, &no_selftest);
}

void SavedModelOptions::settle() {
  const std::optional<DType> named = bf16 ? std::optional(DType::bf16) : fp16 ? std::optional(DType::fp16) : dtype;
  TRIREME_CHECK(!(bf16 && fp16) && (!dtype || dtype == named), ConfigError,
                "--bf16, --fp16 and --dtype exclude each other: give one of them");
  dtype = named;
}

void check_tokenizer(Communicator& world, const NamedTokenizer& named, const std::string& holder,
                     const std::string& name, const std::string& payload) {
  collectively(world, [&] {
    if (world.rank() != 0) return;
    for (const std::string& line : named.compare(holder, name, payload)) log::info("{}", line);
  });
}

std::unique_ptr<SavedModel> load_model(Job& job, const SavedModelOptions& options, const ModelSettler& settle,
                                       const ModelCheck& check) {
  OpenCheckpoint checkpoint =
      open_checkpoint(*job.world, options.load, {.step = options.step, .kept_bytes = job.bytes_for_files()});
  auto saved = std::make_unique<SavedModel>();
  saved->description = checkpoint.description;
  const Attributes& attributes = saved->description.attributes;
  model::ModelConfig config = model::config_from(attributes);
  if (check) check(saved->description, config);
  const bool has_head = !config.predicts_tokens();
  const std::string measuring = has_head ? measuring_command(attributes, config, options.load) : "";
  TRIREME_CHECK(check || (config.causal() && !has_head), CheckpointError,
                "{} holds {}, which does not predict the next token. Try a checkpoint of a pretrained GPT{}",
                checkpoint.reader->description(), config.is_bert() ? "a BERT" : "a model fine-tuned for a task",
                measuring.empty() ? "" : ", or measure this one: " + measuring);
  if (const auto payload = saved->description.blobs.find("tokenizer"); payload != saved->description.blobs.end()) {
    check_tokenizer(*job.world, options.tokenizer, checkpoint.reader->description(),
                    attributes.get<std::string>("tokenizer"), payload->second);
  }
  config.hidden_dropout = 0;
  config.attention_dropout = 0;
  train::ExecutionConfig execution;
  execution.trains = false;
  execution.dtype = options.dtype ? *options.dtype : trained_dtype(attributes);
  check_training_type(*job.backend, execution.dtype);
  if (!options.no_selftest) test_kernels(job, execution.dtype, options.device);
  execution.vocabulary_multiple = options.grid.vocabulary_multiple;
  execution.padded_vocabulary_size = options.grid.padded_vocabulary;
  execution.parallel.pipeline = options.grid.pipeline_split();
  execution.sequence_length = data::sequence_length_from(attributes);
  settle(config, execution);
  check_min_memory(job, config, execution, std::nullopt,
                   "a smaller --micro-batch-size or --seq-length, a 16-bit --dtype, or more tensor or pipeline ranks "
                   "on more machines");
  saved->model =
      std::make_unique<train::ParallelModel>(*job.backend, *job.world, job.grid, job.communicators, config, execution);
  train::ModelState model_state(*saved->model);
  {
    train::HostState host_state(*job.backend, model_state.tensors());
    checkpoint::load(*checkpoint.reader, *job.world, host_state.tensors(), checkpoint::ExtraTensors::leave);
    host_state.store();
  }
  job.backend->release_host_memory();
  model_state.write_back();
  job.backend->compute_stream().synchronize();  // before the memory that it reads is freed
  return saved;
}

void check_finite(bool is_finite, const std::string& load, const SavedModel& saved) {
  TRIREME_CHECK(
      is_finite, NumericalError,
      "the loss of {} is not finite: its training diverged, or --dtype {} cannot hold its values; load an earlier "
      "step, or evaluate in fp32",
      load, name_of(saved.model->execution().dtype));
}

const std::string& tokenizer_payload(const checkpoint::RunDescription& description) {
  const auto payload = description.blobs.find("tokenizer");
  TRIREME_CHECK(payload != description.blobs.end(), CheckpointError, "the checkpoint has no tokenizer");
  return payload->second;
}

std::unique_ptr<data::Tokenizer> tokenizer_of(const checkpoint::RunDescription& description) {
  return data::tokenizer_from_payload(description.attributes.get<std::string>("tokenizer"),
                                      tokenizer_payload(description));
}

std::unique_ptr<data::Tokenizer> prompt_tokenizer_of(const checkpoint::RunDescription& description,
                                                     const SavedModelOptions& options) {
  std::unique_ptr<data::Tokenizer> tokenizer = tokenizer_of(description);
  const std::vector<std::int32_t>& prefix = tokenizer->special().prefix;
  if (prefix.empty()) return tokenizer;
  std::string text;
  tokenizer->decode(prefix, text);
  const std::string ids = fmt::format("{} ({})", fmt::join(prefix, " "), shortened(text));
  if (!options.without_bos) {
    log::info("texts begin with {}, as the model's tokenizer has it; --no-bos leaves it out", ids);
    return tokenizer;
  }
  log::info("--no-bos: texts lack {}, which the model's tokenizer puts before them", ids);
  data::SpecialTokens special = tokenizer->special();
  special.prefix.clear();
  tokenizer->set_special(std::move(special));
  return tokenizer;
}

}  // namespace trireme::app
