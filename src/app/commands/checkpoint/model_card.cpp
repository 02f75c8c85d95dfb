#include "src/app/commands/checkpoint/model_card.hpp"

#include "src/app/job/job.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/train/progress.hpp"

namespace trireme::app {

std::string model_card(const OpenCheckpoint& checkpoint, const exchange::ModelClass& model_class, DType dtype) {
  const Attributes& attributes = checkpoint.description.attributes;
  const checkpoint::Manifest& manifest = checkpoint.reader->manifest();
  const model::ModelConfig config = model::config_from(attributes);
  std::string text =
      fmt::format("---\nlibrary_name: transformers\n{}---\n\n# {}\n\nExported by Trireme {}.\n\n| | |\n| --- | --- |\n",
                  config.is_bert() ? "" : "pipeline_tag: text-generation\n", model_class.name, version());
  const auto row = [&](std::string_view name, const auto& value) { text += fmt::format("| {} | {} |\n", name, value); };
  row("parameters", model::parameter_count(config));
  row("layers, hidden size, heads", fmt::format("{}, {}, {}", config.layers, config.hidden, config.heads));
  row("type of the weights", fmt::format("{}, from {} master weights", name_of(dtype),
                                         manifest.pieces.empty() ? "no" : name_of(manifest.pieces.front().dtype)));
  row("checkpoint", fmt::format("step {}, digest {}", manifest.step, manifest.digest));
  row("files saved by the ranks of its grid", manifest.files.size());
  if (attributes.contains_prefix("state.")) {
    const train::Progress progress = train::progress_from(attributes);
    row("iterations, samples", fmt::format("{}, {}", progress.iteration, progress.consumed_samples));
  }
  // Everything that the run recorded of its data and of its training.
  for (const auto& [name, value] : attributes.texts()) {
    const bool told = name.starts_with("data.") || name.starts_with("training.") || name.starts_with("import.") ||
                      name == "dtype" || name == "tokenizer" || name == "optimizer";
    if (!told || value.find_first_of("|\n`") != value.npos) continue;
    row("`" + name + "`", value);
  }
  return text;
}

}  // namespace trireme::app
