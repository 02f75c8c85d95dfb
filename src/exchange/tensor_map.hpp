#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/model/model_config.hpp"
#include "src/parallel/parameter.hpp"
#include "src/tensor/shape.hpp"

/// Correspondence between a model's parameters and the tensors of other programs. A parameter is a matrix [rows,
/// columns]: columns are its last dimension, or 1 for biases and norms. Its rows are rows of foreign tensors with the
/// same columns, or columns of transposed tensors. One description serves import and export.
namespace trireme::exchange {

/// Some rows of a parameter, and their place in a tensor.
struct RowRun {
  std::int64_t first = 0;  ///< first row of the parameter
  std::int64_t count = 0;
  std::size_t tensor = 0;          ///< index in `TensorMap::tensors`
  std::int64_t foreign_first = 0;  ///< row of the tensor that corresponds to row `first`
  std::int64_t foreign_step = 1;   ///< stride of the rows in the tensor
};

struct MappedParameter {
  std::string name;  ///< as in checkpoints, without "model/"
  Shape shape;
  std::int64_t columns = 1;     ///< inputs of a matrix; 1 for vectors
  bool is_vector = false;       ///< norms, and biases of any shape
  std::vector<RowRun> runs;     ///< ascending; they cover every row once, except for `added_rows`
  double offset = 0;            ///< elements of the tensor minus those of the parameter: 1 if it is stored around 1
  std::int64_t added_rows = 0;  ///< rows at the end that no tensor has; their elements are `added_value`
  double added_value = 0;
  /// An export adds adapter_scale B A to the elements, the product of the parameter's adapter of this rank; 0: none.
  std::int64_t adapter_rank = 0;
  double adapter_scale = 0;
  bool is_initial = false;  ///< no tensor has it: an import gives it the initial weights of a new run
  parallel::ParameterRole role = parallel::ParameterRole::matrix;

  std::int64_t rows() const { return shape.numel() / columns; }
  /// Shape of a tensor of `count` of its rows.
  Shape shape_of(std::int64_t count) const { return is_vector ? Shape{count} : Shape{count, columns}; }
};

struct MappedTensor {
  std::string name;
  Shape shape;                           ///< [rows, columns], transposed [columns, rows], or [rows] for a vector
  bool transposed = false;               ///< like GPT-2's linear layers (Conv1D); corresponds to a full parameter
  bool padded = false;                   ///< may have further rows, which are ignored
  std::vector<std::string> copies = {};  ///< optional tensors with the same content, which an import compares

  std::int64_t rows() const { return transposed ? shape[1] : shape[0]; }
  std::int64_t columns() const { return shape.rank() < 2 ? 1 : transposed ? shape[0] : shape[1]; }
};

/// All parameters of a model, and all tensors of its checkpoint in another program.
struct TensorMap {
  std::vector<MappedParameter> parameters;
  std::vector<MappedTensor> tensors;
};

/// Pairs of a head's channels that rotate together. halves: i and i + d / 2, as here and in Hugging Face's models.
/// interleaved: 2 i and 2 i + 1, as in Meta's files.
enum class RotaryLayout { halves, interleaved };

/// Rows of the tensors that have one for each token.
struct TokenRows {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of rows is enough where all are tokens
  TokenRows(std::int64_t all = 0, std::int64_t used = 0) : all(all), used(used) {}
  std::int64_t all = 0;   ///< 0: the model's vocabulary
  std::int64_t used = 0;  ///< those before the padding; 0: all
};

/// Builds a map parameter by parameter. `finish` rejects an incomplete one.
class TensorMapBuilder {
 public:
  explicit TensorMapBuilder(const model::ModelConfig& config);

  const model::ModelConfig& config() const { return config_; }
  bool has(const std::string& parameter) const { return index_.contains(parameter); }
  /// Adds a tensor. Returns its index.
  std::size_t tensor(MappedTensor tensor);
  /// Maps rows [run.first, run.first + run.count) of `parameter`.
  void run(const std::string& parameter, const RowRun& run);
  /// Maps rows of `parameter` that are the channels of a head.
  void head(const std::string& parameter, RowRun rows, RotaryLayout layout);
  /// Maps all of `parameter` to one new tensor, [rows, columns] or [rows].
  void same(const std::string& parameter, const std::string& tensor);
  /// Maps all of the matrix `parameter` to one new tensor, transposed.
  void transposed(const std::string& parameter, const std::string& tensor);
  /// Maps rows [first, first + count) of `parameter` to one new tensor.
  void rows(const std::string& parameter, std::int64_t first, std::int64_t count, const std::string& tensor);
  /// Maps a parameter with one row for each token to the first rows of a new tensor. If the tensor uses fewer, the
  /// parameter's last rows are `added_value`; ConfigError without one. `copies` as in MappedTensor.
  void tokens(const std::string& parameter, const std::string& tensor, const TokenRows& rows,
              std::vector<std::string> copies, std::optional<double> added_value = {});
  /// Maps all of a parameter once more, to a new tensor like the one that has it: for maps that are only exported.
  void again(const std::string& parameter, const std::string& tensor);
  /// Marks parameters whose names begin with `prefix` as absent from the tensors; an import gives them initial weights.
  void initial(const std::string& prefix);
  /// Maps the queries, keys and values of the layer part `prefix` ("h.0.attn"), weights or biases (`suffix`), to one
  /// new tensor each.
  void split_heads(const std::string& prefix, const std::string& suffix, const std::string& queries,
                   const std::string& keys, const std::string& values, RotaryLayout layout = RotaryLayout::halves);
  /// Maps all of a parameter, whose rows are channels of heads that rotate, to one new tensor.
  void rotated(const std::string& parameter, const std::string& tensor, RotaryLayout layout);
  /// Maps gate and up of a gated feed-forward block, weights or biases, to one new tensor each.
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

/// Returns the prefix of a layer's parameters: h.N.
std::string layer_prefix(int layer);

}  // namespace trireme::exchange
