#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/model/model_config.hpp"
#include "src/tensor/shape.hpp"

/// Correspondence of a model's parameters and the tensors of other programs. A parameter is a matrix [rows, columns]:
/// columns are its last dimension, or 1 of biases and norms. Rows of it are rows of other tensors with as many columns,
/// or columns of tensors that hold the matrix transposed. So one description serves both directions.
namespace trireme::exchange {

/// Some rows of a parameter, and their places in a tensor.
struct RowRun {
  std::int64_t first = 0;  ///< first row of the parameter
  std::int64_t count = 0;
  std::size_t tensor = 0;          ///< index in `TensorMap::tensors`
  std::int64_t foreign_first = 0;  ///< row of the tensor that holds row `first`
  std::int64_t foreign_step = 1;   ///< distance of the rows in the tensor
};

struct MappedParameter {
  std::string name;  ///< as in checkpoints, without "model/"
  Shape shape;
  std::int64_t columns = 1;     ///< inputs of a matrix; 1 of biases, whatever their shape, and of norms
  std::vector<RowRun> runs;     ///< ascending; they cover every row once, except for `added_rows`
  bool centred = false;         ///< a norm's weight, stored as its difference from 1; the tensor has the weight itself
  std::int64_t added_rows = 0;  ///< rows at the end that no tensor has: all their elements are `added_value`
  double added_value = 0;

  std::int64_t rows() const { return shape.numel() / columns; }
};

struct MappedTensor {
  std::string name;
  Shape shape;                           ///< [rows, columns], transposed [columns, rows], or of a vector [rows]
  bool transposed = false;               ///< as GPT-2's linear layers are, called Conv1D; holds a whole parameter
  bool padded = false;                   ///< may have further rows, which are left out
  std::vector<std::string> copies = {};  ///< names of tensors with the same content, which may be missing

  std::int64_t rows() const { return transposed ? shape[1] : shape[0]; }
  std::int64_t columns() const { return shape.rank() < 2 ? 1 : transposed ? shape[0] : shape[1]; }
};

/// All parameters of a model, and all tensors of another program's checkpoint of it.
struct TensorMap {
  std::vector<MappedParameter> parameters;
  std::vector<MappedTensor> tensors;
};

/// Order of the channels of a head that rotate together. halves: i and i + d / 2, as here and in Hugging Face's
/// models. interleaved: 2 i and 2 i + 1, as in Meta's files.
enum class RotaryLayout { halves, interleaved };

/// Builds a map parameter by parameter. `finish` refuses one that forgets rows.
class TensorMapBuilder {
 public:
  explicit TensorMapBuilder(const model::ModelConfig& config);

  const model::ModelConfig& config() const { return config_; }
  bool has(const std::string& parameter) const { return index_.contains(parameter); }
  /// Adds a tensor. Returns its index.
  std::size_t tensor(MappedTensor tensor);
  /// Adds rows of `parameter`: [run.first, run.first + run.count).
  void run(const std::string& parameter, const RowRun& run);
  /// The whole of `parameter` is the whole of one tensor, [rows, columns] or [rows].
  void same(const std::string& parameter, const std::string& tensor);
  /// Likewise, transposed where it is a matrix.
  void transposed(const std::string& parameter, const std::string& tensor);
  /// Rows [first, first + count) of `parameter` are the whole of one tensor.
  void rows(const std::string& parameter, std::int64_t first, std::int64_t count, const std::string& tensor);
  /// A parameter with a row for each token is the first rows of a tensor of `rows` rows, 0: the vocabulary. Where the
  /// tensor has fewer, the parameter's last rows are `added_value`. `copies` as in MappedTensor.
  void tokens(const std::string& parameter, const std::string& tensor, std::int64_t rows,
              std::vector<std::string> copies, double added_value = 0);
  /// The queries, keys and values of a layer, weights or biases (`suffix`), each in a tensor of its own: PREFIX.q...
  /// The prefix is the parameters', "h.0.attn".
  void split_heads(const std::string& prefix, const std::string& suffix, const std::string& queries,
                   const std::string& keys, const std::string& values, RotaryLayout layout = RotaryLayout::halves);
  /// Gate and up of a gated feed-forward block, each in a tensor of its own; weights or biases.
  void split_gate(const std::string& parameter, const std::string& gate, const std::string& up);

  MappedParameter& parameter(const std::string& name);
  /// Throws ShapeError if rows of a parameter or a tensor have no counterpart.
  TensorMap finish();

 private:
  void heads(const std::string& parameter, std::int64_t first_head, std::int64_t heads, const std::string& tensor,
             RotaryLayout layout);
  model::ModelConfig config_;
  TensorMap map_;
  std::map<std::string, std::size_t> index_;  // parameters by name
};

/// Place of a layer's parameters: h.N.
std::string layer_prefix(int layer);

}  // namespace trireme::exchange
