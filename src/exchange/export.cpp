#include "src/exchange/export.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"
#include "src/checkpoint/load.hpp"
#include "src/exchange/elements.hpp"
#include "src/exchange/read_ahead.hpp"

namespace trireme::exchange {
namespace {

/// Rows of a parameter that are written together.
struct Block {
  const MappedParameter* parameter = nullptr;
  const RowRun* run = nullptr;
  std::int64_t first = 0;  // row of the parameter
  std::int64_t count = 0;
};

/// Rows of a block that are read and converted together.
struct Part {
  std::size_t block = 0;
  std::int64_t first = 0;  // row of the parameter
  std::int64_t count = 0;
};

/// Computes the elements of tensors from a step's parameters.
class TensorBuilder {
 public:
  TensorBuilder(checkpoint::StepReader& step, const TensorMap& map, DType dtype)
      : reader_(step, checkpoint::Verification::while_reading), map_(map), dtype_(dtype) {
    for (const checkpoint::Piece& piece : step.manifest().pieces) masters_.try_emplace(piece.tensor, &piece);
    std::vector<std::string> problems;
    const auto require = [&](const std::string& name, const Shape& shape) {
      const auto found = masters_.find("model/" + name);
      if (found == masters_.end() || found->second->shape != shape || !is_floating(found->second->dtype)) {
        problems.push_back(fmt::format("{} {}", name, to_string(shape)));
      }
    };
    for (const MappedParameter& parameter : map.parameters) {
      require(parameter.name, parameter.shape);
      if (parameter.adapter_rank == 0) continue;
      require(adapter_of(parameter, 'a'), inputs_shape(parameter));
      require(adapter_of(parameter, 'b'), outputs_shape(parameter));
    }
    TRIREME_CHECK(problems.empty(), CheckpointError,
                  "{} lacks parameters of its model, or has them in other shapes: {}", step.description(),
                  fmt::join(problems, ", "));
  }

  DType master(const MappedParameter& parameter) const { return masters_.at("model/" + parameter.name)->dtype; }

  std::int64_t size_bytes(const Block& block) const {
    return block.count * block.parameter->columns * static_cast<std::int64_t>(size_of(dtype_));
  }

  /// Hint: `read` of this part follows. Returns its size in the checkpoint.
  std::int64_t prefetch(const Block& block, const Part& part) {
    const std::int64_t columns = block.parameter->columns;
    reader_.prefetch("model/" + block.parameter->name,
                     {Box::whole(block.parameter->shape), part.first * columns, part.count * columns});
    return part.count * columns * static_cast<std::int64_t>(size_of(master(*block.parameter)));
  }

  /// Reads a part into `elements`, the elements of the block in the order of `places`.
  void read(const Block& block, const Part& part, std::vector<std::byte>& elements) {
    const MappedParameter& parameter = *block.parameter;
    const bool is_adapted = parameter.adapter_rank > 0;
    const DType stored = is_adapted ? DType::fp64 : master(parameter);
    const std::int64_t columns = parameter.columns, count = part.count * columns;
    masters_bytes_.resize(static_cast<std::size_t>(count) * size_of(stored));
    read(parameter.name, parameter.shape, part.first * columns, TensorView(masters_bytes_.data(), stored, {count}));
    if (is_adapted) add_adapter(parameter, part, reinterpret_cast<double*>(masters_bytes_.data()));
    if (parameter.offset != 0) add(masters_bytes_.data(), stored, count, parameter.offset);
    elements.resize(static_cast<std::size_t>(size_bytes(block)));
    const auto element = static_cast<std::int64_t>(size_of(dtype_));
    const std::int64_t row = part.first - block.first;
    const MappedTensor& tensor = map_.tensors[block.run->tensor];
    const std::int64_t lost =
        tensor.transposed
            ? convert_transposed(masters_bytes_.data(), stored, part.count, columns, elements.data() + row * element,
                                 dtype_, block.count)
            : convert(masters_bytes_.data(), stored, elements.data() + row * columns * element, dtype_, count);
    if (lost > 0) reader_.finish();  // a damaged file is the better reason
    require_finite(lost, tensor.name, dtype_);
  }

  /// Returns where a block's elements are in its tensor.
  Ranges places(const Block& block) const {
    const RowRun& run = *block.run;
    const MappedTensor& tensor = map_.tensors[run.tensor];
    const std::int64_t columns = block.parameter->columns;
    const std::int64_t row = run.foreign_first + (block.first - run.first) * run.foreign_step;
    if (tensor.transposed && block.count < tensor.rows()) return {run.tensor, row, block.count, columns, tensor.rows()};
    if (run.foreign_step == 1) return {run.tensor, row * columns, block.count * columns};
    return {run.tensor, row * columns, columns, block.count, run.foreign_step * columns};
  }

  /// Throws CheckpointError if the data read so far are damaged.
  void finish() { reader_.finish(); }

 private:
  static std::string adapter_of(const MappedParameter& parameter, char matrix) {
    return fmt::format("{}.lora_{}.weight", parameter.name.substr(0, parameter.name.rfind('.')), matrix);
  }
  static Shape inputs_shape(const MappedParameter& parameter) { return {parameter.adapter_rank, parameter.columns}; }
  static Shape outputs_shape(const MappedParameter& parameter) {
    Shape shape = parameter.shape;
    shape[shape.rank() - 1] = parameter.adapter_rank;
    return shape;
  }
  /// Reads elements of a parameter of this shape, from `first` on.
  void read(const std::string& name, const Shape& shape, std::int64_t first, TensorView elements) {
    reader_.read({"model/" + name, shape, Box::whole(shape), first, elements});
  }
  /// Adds adapter_scale B A to rows of a parameter, in fp64.
  void add_adapter(const MappedParameter& parameter, const Part& part, double* rows) {
    const std::int64_t rank = parameter.adapter_rank, columns = parameter.columns;
    if (adapter_of_inputs_ != &parameter) {
      inputs_.resize(static_cast<std::size_t>(rank * columns));
      read(adapter_of(parameter, 'a'), inputs_shape(parameter), 0, TensorView(inputs_.data(), {rank * columns}));
      adapter_of_inputs_ = &parameter;
    }
    std::vector<double> outputs(static_cast<std::size_t>(part.count * rank));
    const TensorView b(outputs.data(), {part.count * rank});
    read(adapter_of(parameter, 'b'), outputs_shape(parameter), part.first * rank, b);
    for (std::int64_t row = 0; row < part.count; ++row) {
      for (std::int64_t k = 0; k < rank; ++k) {
        const double factor = parameter.adapter_scale * outputs[static_cast<std::size_t>(row * rank + k)];
        const double* a = inputs_.data() + k * columns;
        for (std::int64_t i = 0; i < columns; ++i) rows[row * columns + i] += factor * a[i];
      }
    }
  }

  checkpoint::TensorReader reader_;
  const TensorMap& map_;
  DType dtype_;
  std::map<std::string, const checkpoint::Piece*> masters_;
  std::vector<std::byte> masters_bytes_;
  std::vector<double> inputs_;                          // A of the latest adapter
  const MappedParameter* adapter_of_inputs_ = nullptr;  // parameter of that adapter
};

/// Returns, on rank 0, the digest of the digests of all blocks of a file, in their order. `mine` are those of this
/// rank.
std::string combined(Communicator& world, const std::vector<std::string>& mine) {
  Digest digest;
  for (const std::string& text : gather_text(world, fmt::format("{}", fmt::join(mine, "")), 0)) {
    digest.update(text.data(), text.size());
  }
  return world.rank() == 0 ? digest.hex() : std::string();
}

class Exporter {
 public:
  Exporter(TensorBuilder& builder, const TensorMap& map, DType dtype, TensorDestination& destination,
           Communicator& world, const ExportSizes& sizes)
      : builder_(builder), map_(map), dtype_(dtype), destination_(destination), world_(world), sizes_(sizes) {}

  ExportResult run() {
    ExportResult result;
    for (std::size_t file = 0; file < destination_.files().size(); ++file) {
      find_blocks(destination_.files()[file]);
      if (is_whole(file)) {
        log::info("{} already exists and is intact: kept", destination_.file_name(file));
        ++result.kept_files;
        continue;
      }
      write(file);
      ++result.written_files;
      for (const std::size_t tensor : destination_.files()[file]) {
        result.written_bytes += map_.tensors[tensor].shape.numel() * static_cast<std::int64_t>(size_of(dtype_));
      }
    }
    return result;
  }

 private:
  /// Divides the parameters of these tensors over the ranks in contiguous shares of about equal size. One rank has all
  /// blocks of a parameter, so that its bytes are read once and in order.
  void find_blocks(const std::vector<std::size_t>& tensors) {
    const std::set<std::size_t> present(tensors.begin(), tensors.end());
    const auto element = static_cast<std::int64_t>(size_of(dtype_));
    std::int64_t total = 0, done = 0;
    for (const std::size_t tensor : tensors) total += map_.tensors[tensor].shape.numel() * element;
    const std::int64_t share = (total + world_.size() - 1) / world_.size();
    blocks_.clear();
    parts_.clear();
    for (const MappedParameter& parameter : map_.parameters) {
      const bool is_mine = done / share == world_.rank();
      for (const RowRun& run : parameter.runs) {
        if (!present.contains(run.tensor)) continue;
        done += run.count * parameter.columns * element;
        if (is_mine) add_blocks(parameter, run);
      }
    }
  }

  void add_blocks(const MappedParameter& parameter, const RowRun& run) {
    const std::int64_t read_bytes = parameter.columns * static_cast<std::int64_t>(size_of(builder_.master(parameter)));
    const std::int64_t part_rows = std::max<std::int64_t>(1, sizes_.slice_bytes / read_bytes);
    const std::int64_t write_bytes = parameter.columns * static_cast<std::int64_t>(size_of(dtype_));
    const std::int64_t transposed_rows = std::max(part_rows, sizes_.transposed_bytes / write_bytes);
    const std::int64_t step = map_.tensors[run.tensor].transposed ? transposed_rows : part_rows;
    const std::int64_t end = run.first + run.count;
    for (std::int64_t first = run.first; first < end; first += step) {
      const Block& block = blocks_.emplace_back(Block{&parameter, &run, first, std::min(step, end - first)});
      for (std::int64_t row = first; row < first + block.count; row += part_rows) {
        parts_.push_back({blocks_.size() - 1, row, std::min(part_rows, first + block.count - row)});
      }
    }
  }

  bool is_whole(std::size_t file) {
    std::string stated;
    collectively(world_, [&] { stated = destination_.open_existing(file); });
    if (broadcast_text(world_, stated, 0).empty()) return false;
    std::vector<std::string> digests;
    collectively(world_, [&] {
      TRIREME_CHECK(!stated.empty(), EnvironmentError,
                    "{} does not exist on all nodes: an export needs a folder shared by all",
                    destination_.file_name(file));
      for (const Block& block : blocks_) {
        elements_.resize(static_cast<std::size_t>(builder_.size_bytes(block)));
        destination_.read(builder_.places(block), elements_);
        digests.push_back(digest(elements_.data(), elements_.size()));
      }
      destination_.close();
    });
    const std::string found = combined(world_, digests);
    return !broadcast_text(world_, found == stated ? "whole" : "", 0).empty();
  }

  void write(std::size_t file) {
    std::string begun;
    collectively(world_, [&] {
      if (world_.rank() == 0) begun = destination_.begin(file);
    });
    begun = broadcast_text(world_, begun, 0);
    try {
      std::vector<std::string> digests;
      collectively(world_, [&] {
        destination_.open(file, begun);
        ReadAhead ahead(parts_.size(), sizes_.slice_bytes);
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          ahead.advance(i,
                        [&](std::size_t next) { return builder_.prefetch(blocks_[parts_[next].block], parts_[next]); });
          const Part& part = parts_[i];
          const Block& block = blocks_[part.block];
          builder_.read(block, part, elements_);
          if (part.first + part.count < block.first + block.count) continue;
          destination_.write(builder_.places(block), elements_);
          digests.push_back(digest(elements_.data(), elements_.size()));
        }
        builder_.finish();
        destination_.close();
      });
      const std::string all = combined(world_, digests);
      collectively(world_, [&] {
        if (world_.rank() == 0) destination_.commit(all);
      });
    } catch (...) {
      if (world_.rank() == 0) destination_.abandon();
      throw;
    }
  }

  TensorBuilder& builder_;
  const TensorMap& map_;
  DType dtype_;
  TensorDestination& destination_;
  Communicator& world_;
  ExportSizes sizes_;
  std::vector<Block> blocks_;  // blocks of this rank in the current file
  std::vector<Part> parts_;
  std::vector<std::byte> elements_;  // elements of a block
};

}  // namespace

std::vector<ForeignTensor> tensors_of(const TensorMap& map, DType dtype) {
  std::vector<ForeignTensor> tensors;
  for (const MappedTensor& tensor : map.tensors) tensors.push_back({tensor.name, dtype, tensor.shape});
  return tensors;
}

ExportResult export_weights(checkpoint::StepReader& step, const TensorMap& map, DType dtype,
                            TensorDestination& destination, Communicator& world, const ExportSizes& sizes) {
  std::optional<TensorBuilder> builder;
  collectively(world, [&] { builder.emplace(step, map, dtype); });
  return Exporter(*builder, map, dtype, destination, world, sizes).run();
}

}  // namespace trireme::exchange
