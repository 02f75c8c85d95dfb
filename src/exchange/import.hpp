#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/checkpoint/state.hpp"
#include "src/checkpoint/store.hpp"
#include "src/comm/communicator.hpp"
#include "src/exchange/tensor_map.hpp"
#include "src/exchange/tensor_source.hpp"

namespace trireme::exchange {

/// Bytes of the greatest part of a tensor that a rank holds at a time, unless one row has more.
inline constexpr std::int64_t default_slice_bytes = std::int64_t{16} << 20;

/// Other names of a tensor, best first, and tensors that are no weights.
struct NameRules {
  std::function<std::vector<std::string>(const std::string&)> other_names = [](const std::string&) {
    return std::vector<std::string>();
  };
  std::function<bool(const std::string&)> is_ignored = [](const std::string&) { return false; };
};

/// Finds the tensors of `map` in a source: their indices there. Throws one DataError that lists all that are missing,
/// extra, of another shape or of a type that holds no weights.
std::vector<std::size_t> match(const TensorMap& map, const TensorSource& source, const NameRules& rules);

/// Part of a parameter [rows, columns]: some of its rows, or of its columns where its tensor is transposed.
struct ParameterSlice {
  const MappedParameter* parameter = nullptr;
  bool of_columns = false;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Reads parts of a model's parameters from a source.
class ParameterReader {
 public:
  /// `map` and `source` must live longer. `tensors` as from `match`.
  ParameterReader(const TensorMap& map, TensorSource& source, std::vector<std::size_t> tensors);
  /// Slices of a parameter, in the order of its tensors: whole rows or columns of at most `slice_bytes` in `dtype`,
  /// and at least one.
  std::vector<ParameterSlice> slices_of(const MappedParameter& parameter, DType dtype, std::int64_t slice_bytes) const;
  /// The elements of a slice, [rows, columns] of it, converted to `dtype`, fp64 or fp32. Overwrites `out`.
  void read(const ParameterSlice& slice, DType dtype, std::vector<std::byte>& out);
  /// The elements of a whole parameter.
  void read(const MappedParameter& parameter, DType dtype, std::vector<std::byte>& out);
  /// Hint: `read` of this slice follows. Returns its bytes in the source.
  std::int64_t prefetch(const ParameterSlice& slice);

 private:
  /// Rows of a tensor as it is stored that hold a slice's part of a run.
  struct StoredRows {
    std::size_t tensor = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;    // between the first and the last one, both included
    std::int64_t columns = 0;  // elements of each
  };
  StoredRows stored_rows(const RowRun& run, const ParameterSlice& part) const;
  void read_run(const RowRun& run, const ParameterSlice& part, DType dtype, std::byte* out);
  const TensorMap& map_;
  TensorSource& source_;
  std::vector<std::size_t> tensors_;
  std::vector<std::byte> raw_;
};

struct ImportSizes {
  std::int64_t slice_bytes = default_slice_bytes;
  /// Greatest size of a file, except for one slice. Whoever opens the step divides its files over ranks to verify them.
  std::int64_t file_bytes = std::int64_t{2} << 30;
};

/// Saves the weights of a source as a step of `store`: "model/NAME" of every parameter, in `master`, fp64 or fp32.
/// Collective: the ranks of `world` read and write equal shares of the bytes. A rank holds one slice at a time, and
/// what it is made of. The step becomes the latest one, or nothing changes (see write_step). `source_digest` changes
/// with the source's content; with it an import continues where the same one was killed. Empty: it begins anew.
void import_weights(TensorSource& source, const TensorMap& map, const std::vector<std::size_t>& tensors, DType master,
                    checkpoint::Store& store, Communicator& world, const checkpoint::RunDescription& description,
                    const std::string& source_digest = {}, const ImportSizes& sizes = {});

}  // namespace trireme::exchange
