#include "io/megatron/megatron_checkpoint.hpp"

#include <algorithm>

#include "io/megatron/megatron_files.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

/// Returns the folder of one step: `path` itself, or the latest one in it.
std::string step_folder(const std::string& path) {
  const std::string tracker = path + "/latest_checkpointed_iteration.txt";
  if (!is_there(tracker)) return path;
  std::string step = read_whole_file(tracker, 4096, Symlinks::follow);
  while (!step.empty() && (step.back() == '\n' || step.back() == ' ')) step.pop_back();
  if (step == "release") return path + "/release";
  const bool is_number =
      !step.empty() && step.size() <= 12 && std::ranges::all_of(step, [](char c) { return c >= '0' && c <= '9'; });
  TRIREME_CHECK(is_number, DataError, "{} has '{}', neither an iteration nor 'release'", tracker, shortened(step));
  return fmt::format("{}/iter_{:07d}", path, std::stoll(step));
}

/// Sets the number of rows of the token embedding, and checks it against the run's options.
void read_vocabulary_rows(MegatronCheckpoint& checkpoint) {
  constexpr std::string_view table = "embedding.word_embeddings.weight";
  const auto found = std::ranges::find_if(checkpoint.source->tensors(), [&](const exchange::ForeignTensor& tensor) {
    return tensor.name.ends_with(table) && tensor.shape.rank() == 2;
  });
  TRIREME_CHECK(found != checkpoint.source->tensors().end(), DataError,
                "{} has no tensor {}: it is not a GPT or BERT of Megatron-LM", checkpoint.source->description(), table);
  const std::int64_t rows = found->shape[0], stated = checkpoint.model.padded_vocabulary;
  TRIREME_CHECK(stated == 0 || stated == rows, DataError,
                "{}: padded_vocab_size is {}, but {} has {} rows: files of several checkpoints may be mixed",
                checkpoint.source->description(), stated, shortened(found->name), rows);
  checkpoint.layout.vocabulary_rows = rows;
}

}  // namespace

exchange::MegatronHeads heads_of_version(const PickleValue& saved, const std::string& path) {
  const auto version = saved.find("checkpoint_version");
  if (!version || version->is_none()) return exchange::MegatronHeads::parts_of_shards;
  const bool is_number = version->is(PickleKind::integer) || version->is(PickleKind::real);
  const double number = version->is(PickleKind::integer) ? static_cast<double>(version->integer()) : version->real();
  TRIREME_CHECK(is_number && (number == 0 || number == 1 || number == 2 || number == 3), DataError,
                "{} has {} {} as its checkpoint_version; versions 0 to 3 are read", path, version->description(),
                number);
  return number == 0   ? exchange::MegatronHeads::parts_of_shards
         : number == 1 ? exchange::MegatronHeads::channels
                       : exchange::MegatronHeads::groups;
}

MegatronCheckpoint open_megatron_checkpoint(const std::string& path) {
  TRIREME_CHECK(is_there(path), DataError, "there is no {}", path);
  const std::string folder = step_folder(path);
  TRIREME_CHECK(is_there(folder), DataError, "{} names {} as its latest checkpoint, which does not exist", path,
                folder);
  const bool is_distributed = has_distributed_files(folder);
  TRIREME_CHECK(is_distributed || has_rank_files(folder), DataError,
                "{} holds neither mp_rank_00 nor .metadata of a checkpoint of Megatron-LM in the formats torch and "
                "torch_dist",
                folder);
  MegatronCheckpoint checkpoint = is_distributed ? open_distributed_files(folder) : open_rank_files(folder);
  read_vocabulary_rows(checkpoint);
  return checkpoint;
}

}  // namespace trireme::io
