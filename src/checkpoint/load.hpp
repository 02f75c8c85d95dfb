#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/piece_reader.hpp"
#include "src/checkpoint/state.hpp"
#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"

/// Loading (collective over `world`, a communicator of host memory, except `read_description`):
///
///   const std::unique_ptr<StepReader> step = open_checkpoint(store, world, name);  // "" for the latest
///   const RunDescription description = read_description(*step);                    // model shape, tokenizer ...
///   ... build the model, on any grid ...
///   load(*step, world, trainer.state_tensors());                                   // overwrites StateTensor::data
namespace trireme::checkpoint {

/// A checkpoint written by a later version of the program. No older step is used instead.
class NewerFormatError : public CheckpointError {
  using CheckpointError::CheckpointError;
};

/// Chooses among the steps of a store, on rank 0.
using StepFilter = std::function<bool(const StepEntry&)>;

/// Returns whether the store holds any step, intact or not, that `filter`, if given, admits.
bool has_checkpoint(Store& store, Communicator& world, const StepFilter& filter = {});

/// Time at which a step's bytes are verified against their digests.
enum class Verification {
  at_opening,     ///< all files, before anything else is read
  while_reading,  ///< each piece as a TensorReader reads it: halves the reading for a model larger than memory
};

/// Opens a step after checking its files, divided among the ranks: their sizes and, with `at_opening`, digests.
///
/// With a `name` it is that step or an error. Without, it is the latest intact step, of those that `filter` admits, if
/// given; warnings report damage to later ones, or that the store's pointer names another. CheckpointError if there is
/// none. A temporarily unreadable step is not damaged: it is an IoError, and no older one is used instead. The reader
/// keeps at most `kept_bytes` of the files that this rank verified in memory, and does not read them again.
std::unique_ptr<StepReader> open_checkpoint(Store& store, Communicator& world, const std::string& name = {},
                                            Verification verification = Verification::at_opening,
                                            const StepFilter& filter = {}, std::int64_t kept_bytes = 0);

/// Step, attributes and blobs.
RunDescription read_description(StepReader& step);

/// Treatment of tensors in the checkpoint that no rank loads.
enum class ExtraTensors { refuse, leave };

/// Fills `data` of every tensor, saved on any grid. Each rank reads only its own slices, so no rank ever holds the full
/// model. Of ranks that hold the same pieces (StateTensor::family) one reads each, the writer if it is among them, and
/// broadcasts it to the others. Floating-point types convert to each other, rounded to nearest even, from or to fp64
/// with a line in the log; other types must match. Throws CheckpointError, naming the first 20, if tensors are missing
/// or extra or differ in shape or type; `tensors` is then unmodified.
void load(StepReader& step, Communicator& world, std::span<const StateTensor> tensors,
          ExtraTensors extra = ExtraTensors::refuse);

/// Reads tensors of a step on one rank, saved on any grid.
class TensorReader {
 public:
  /// `step`, opened with this `verification`, must outlive this object.
  explicit TensorReader(StepReader& step, Verification verification = Verification::at_opening);
  /// Fills `tensor.data`, whose shape must be that of the checkpoint, and its type as for `load`. CheckpointError if
  /// elements are missing or damaged. With `while_reading` a later call may find the damage: data are only valid after
  /// `finish`. Each byte is read once if every tensor is read from its first element to its last.
  void read(const StateTensor& tensor);
  /// Hint: `read` of these elements follows.
  void prefetch(const std::string& name, const TensorSlice& slice);
  /// Verifies everything read so far against its digests; reads the rest of each partially read piece.
  void finish();

 private:
  StepReader& step_;
  Verification verification_;
  std::map<std::string, std::vector<const Piece*>> pieces_;  // in the order of the files
  std::map<const Piece*, PieceCheck> checks_;                // unused with `at_opening`
};

/// Throws NewerFormatError if a later version of the program wrote the step.
void check_format(const StepReader& step);

/// Returns whether the manifest of a step is valid and all of its files exist with their sizes. Does not read the
/// files. IoError if that cannot be determined.
bool looks_complete(Store& store, const std::string& name);

/// Throws CheckpointError naming files that the manifest does not list, if any.
void check_files(StepReader& step);

/// Throws CheckpointError naming the file and the affected tensors unless the file matches the manifest's size and
/// digest.
void verify_file(StepReader& step, std::size_t file);

}  // namespace trireme::checkpoint
