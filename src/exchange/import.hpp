#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"
#include "src/exchange/tensor_map.hpp"
#include "src/exchange/tensor_source.hpp"

namespace trireme::exchange {

/// Largest part of a tensor that a rank holds at a time, unless one row is larger.
inline constexpr std::int64_t default_slice_bytes = std::int64_t{16} << 20;

/// Alternative names of a tensor, best first, and which tensors are not weights.
struct NameRules {
  std::function<std::vector<std::string>(const std::string&)> other_names = [](const std::string&) {
    return std::vector<std::string>();
  };
  std::function<bool(const std::string&)> is_ignored = [](const std::string&) { return false; };
};

/// Finds tensors of a source by their names, or else by others.
class TensorFinder {
 public:
  /// `source` and `rules` must outlive it.
  TensorFinder(const TensorSource& source, const NameRules& rules);
  /// Returns the index of a tensor; empty if there is none.
  std::optional<std::size_t> find(const std::string& name) const;

 private:
  const NameRules& rules_;
  std::map<std::string_view, std::size_t> by_name_;
};

/// For each tensor of a map, the indices in a source of the one that is read, and of others with the same content.
using MatchedTensors = std::vector<std::vector<std::size_t>>;

/// Finds the tensors of `map`. Throws one DataError that lists all that are missing, extra, of another shape or not of
/// a floating-point type.
MatchedTensors match(const TensorMap& map, const TensorSource& source, const NameRules& rules);

/// Some rows of a parameter [rows, columns], or some of its columns if its tensor is transposed.
struct ParameterSlice {
  const MappedParameter* parameter = nullptr;
  bool of_columns = false;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Reads parts of a model's parameters from a source.
class ParameterReader {
 public:
  /// `map` and `source` must outlive it. `tensors` is the result of `match`.
  ParameterReader(const TensorMap& map, TensorSource& source, MatchedTensors tensors);
  /// Divides a parameter into slices, in the order of its tensors: whole rows or columns of at most `slice_bytes` in
  /// `dtype`, but at least one.
  std::vector<ParameterSlice> slices_of(const MappedParameter& parameter, DType dtype, std::int64_t slice_bytes) const;
  /// Reads the elements of a slice, [rows, columns], converted to `dtype`, fp64 or fp32. Overwrites `out`. DataError if
  /// copies of a tensor differ there, ConfigError if `dtype` cannot hold an element.
  void read(const ParameterSlice& slice, DType dtype, std::vector<std::byte>& out);
  /// Reads the elements of a full parameter.
  void read(const MappedParameter& parameter, DType dtype, std::vector<std::byte>& out);
  /// Hints that `read` of this slice follows. Returns its size in the source.
  std::int64_t prefetch(const ParameterSlice& slice);

 private:
  /// Rows of a stored tensor that contain a slice's part of a run.
  struct StoredRows {
    std::size_t tensor = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;    // from the first to the last one, inclusive
    std::int64_t columns = 0;  // elements of each
  };
  StoredRows stored_rows(const RowRun& run, const ParameterSlice& part) const;
  /// Throws DataError if these rows of a copy differ from `raw_`.
  void compare(const StoredRows& rows, std::size_t copy);
  void read_run(const RowRun& run, const ParameterSlice& part, DType dtype, std::byte* out);
  const TensorMap& map_;
  TensorSource& source_;
  MatchedTensors tensors_;
  std::vector<std::byte> raw_, copy_;
};

struct ImportSizes {
  std::int64_t slice_bytes = default_slice_bytes;
  /// Largest size of a file, except for one slice. Ranks that open the step share the verification of its files.
  std::int64_t file_bytes = std::int64_t{2} << 30;
};

/// Saves the weights of a source as a step of `store`: "model/NAME" of every parameter, in `master`, fp64 or fp32.
/// Collective: the ranks of `world` read and write equal shares of the bytes. A rank holds one slice at a time, and its
/// source. The step becomes the latest one, or nothing changes (see write_step). `source_digest` identifies the
/// source's content: an import with the same digest resumes one that was killed. Empty: it starts anew.
void import_weights(TensorSource& source, const TensorMap& map, const MatchedTensors& tensors, DType master,
                    checkpoint::Store& store, Communicator& world, const checkpoint::RunDescription& description,
                    const std::string& source_digest = {}, const ImportSizes& sizes = {});

}  // namespace trireme::exchange
