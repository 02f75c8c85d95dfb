#pragma once

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
///   ... build the model; any grid will do ...
///   load(*step, world, trainer.state_tensors());                                   // overwrites StateTensor::data
namespace trireme::checkpoint {

/// A checkpoint written by a later version of the program. No older step is taken in its place.
class NewerFormatError : public CheckpointError {
  using CheckpointError::CheckpointError;
};

/// Returns whether the store holds any step, intact or not.
bool has_checkpoint(Store& store, Communicator& world);

/// Time at which the bytes of a step are compared with their digests.
enum class Verification {
  at_opening,     ///< all files, before anything else is read
  while_reading,  ///< the pieces that a TensorReader reads, as it reads them: half the reading for a model beyond
                  ///< memory
};

/// Opens a step whose files, shared out among the ranks, have their sizes and with `at_opening` their digests.
///
/// With a `name` it is that step or an error. Without, it is the greatest step that is intact; warnings say how greater
/// ones are damaged, or that the store's pointer names another. CheckpointError where there is none. A step that cannot
/// be read at present is not damaged: it is an IoError, and no older one is taken in its place.
std::unique_ptr<StepReader> open_checkpoint(Store& store, Communicator& world, const std::string& name = {},
                                            Verification verification = Verification::at_opening);

/// Step, attributes and blobs.
RunDescription read_description(StepReader& step);

/// Treatment of tensors in the checkpoint that no rank loads.
enum class ExtraTensors { refuse, leave };

/// Fills `data` of every tensor, whatever the grid it was saved on. Each rank reads its own slices alone, so that no
/// rank ever holds the model. fp32, bf16 and fp16 become each other, rounded to nearest even. Throws CheckpointError,
/// naming the first 20, where tensors are missing or extra or have another shape or another of all other types; then
/// nothing has been written to `tensors`.
void load(StepReader& step, Communicator& world, std::span<const StateTensor> tensors,
          ExtraTensors extra = ExtraTensors::refuse);

/// Reads tensors of a step on one rank alone, on whatever grid they were saved.
class TensorReader {
 public:
  /// `step`, opened with this `verification`, must live longer.
  explicit TensorReader(StepReader& step, Verification verification = Verification::at_opening);
  /// Fills `tensor.data`, whose shape must be that of the checkpoint, and its type as for `load`. CheckpointError where
  /// elements are not there or are damaged. With `while_reading` a later call may find the damage: what was read counts
  /// after `finish`. Each byte is read once if every tensor is read from its first element to its last.
  void read(const StateTensor& tensor);
  /// Hint: `read` of these elements follows.
  void prefetch(const std::string& name, const TensorSlice& slice);
  /// Compares what was read so far with its digests; reads the rest of each piece that was read in part.
  void finish();

 private:
  StepReader& step_;
  Verification verification_;
  std::map<std::string, std::vector<const Piece*>> pieces_;  // in the order of the files
  std::map<const Piece*, PieceCheck> checks_;                // unused with `at_opening`
};

/// Throws NewerFormatError where a later version of the program wrote the step.
void check_format(const StepReader& step);

/// Returns whether the manifest is valid and all of its files exist with their sizes. Does not read the files.
bool looks_complete(StepReader& step);

/// Throws CheckpointError naming the files that the manifest does not list, if there are any.
void check_files(StepReader& step);

/// Throws CheckpointError that names the file, and the tensors concerned, unless the file has the size and digest that
/// the manifest says.
void verify_file(StepReader& step, std::size_t file);

}  // namespace trireme::checkpoint
