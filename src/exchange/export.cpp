#include "src/exchange/export.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"
#include "src/checkpoint/load.hpp"
#include "src/exchange/elements.hpp"

namespace trireme::exchange {
namespace {

/// Rows [first, first + count) of the tensor as it is stored: of a transposed one, columns of the parameter.
struct Slice {
  std::size_t tensor = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A run of a tensor, with its parameter.
struct TensorRun {
  const MappedParameter* parameter = nullptr;
  RowRun run;
};

/// Makes slices of tensors of a step's parameters.
class TensorBuilder {
 public:
  TensorBuilder(checkpoint::StepReader& step, const TensorMap& map, DType dtype)
      : reader_(step), map_(map), dtype_(dtype), runs_(map.tensors.size()) {
    for (const MappedParameter& parameter : map.parameters) {
      for (const RowRun& run : parameter.runs) runs_[run.tensor].push_back({&parameter, run});
    }
    for (const checkpoint::Piece& piece : step.manifest().pieces) masters_.try_emplace(piece.tensor, &piece);
    std::vector<std::string> problems;
    for (const MappedParameter& parameter : map.parameters) {
      const auto found = masters_.find("model/" + parameter.name);
      if (found == masters_.end() || found->second->shape != parameter.shape || !is_floating(found->second->dtype)) {
        problems.push_back(fmt::format("{} {}", parameter.name, to_string(parameter.shape)));
      }
    }
    TRIREME_CHECK(problems.empty(), CheckpointError,
                  "{} lacks parameters of its model, or has them in other shapes: {}", step.description(),
                  fmt::join(problems, ", "));
  }

  /// The elements of a slice. Valid until the next call.
  std::span<const std::byte> build(const Slice& slice) {
    const MappedTensor& tensor = map_.tensors[slice.tensor];
    const std::int64_t width = tensor.transposed ? tensor.rows() : tensor.columns();
    const auto element = static_cast<std::int64_t>(size_of(dtype_));
    out_.resize(static_cast<std::size_t>(slice.count * width * element));
    for (const TensorRun& run : runs_[slice.tensor]) {
      if (tensor.transposed) {
        build_columns(run, slice);
      } else {
        build_rows(run, slice);
      }
    }
    return out_;
  }

 private:
  /// Reads rows of a parameter, of them columns [column, column + columns), in the type of the export.
  void read(const MappedParameter& parameter, std::int64_t first, std::int64_t count, std::int64_t column,
            std::int64_t columns) {
    const DType master = masters_.at("model/" + parameter.name)->dtype;
    Box box = Box::whole(parameter.shape);
    if (columns != parameter.columns) {
      const int last = parameter.shape.rank() - 1;
      box.offset[last] = column;
      box.extent[last] = columns;
    }
    const std::int64_t elements = count * columns;
    masters_bytes_.resize(static_cast<std::size_t>(elements) * size_of(master));
    reader_.read({"model/" + parameter.name, parameter.shape, box, first * columns,
                  TensorView(masters_bytes_.data(), master, {elements})});
    if (parameter.centred) add(masters_bytes_.data(), master, elements, 1);
    rows_.resize(static_cast<std::size_t>(elements) * size_of(dtype_));
    convert(masters_bytes_.data(), master, rows_.data(), dtype_, elements);
  }

  void build_rows(const TensorRun& from, const Slice& slice) {
    const RowRun& run = from.run;
    const std::int64_t columns = from.parameter->columns, step = run.foreign_step;
    const auto row_bytes = columns * static_cast<std::int64_t>(size_of(dtype_));
    // Rows i of the run whose place, foreign_first + i step, is in the slice.
    const std::int64_t begin =
        std::clamp<std::int64_t>((slice.first - run.foreign_first + step - 1) / step, 0, run.count);
    const std::int64_t end =
        slice.first + slice.count <= run.foreign_first
            ? 0
            : std::min(run.count, (slice.first + slice.count - run.foreign_first + step - 1) / step);
    if (begin >= end || slice.first + slice.count <= run.foreign_first) return;
    read(*from.parameter, run.first + begin, end - begin, 0, columns);
    std::byte* const out = out_.data() + (run.foreign_first + begin * step - slice.first) * row_bytes;
    if (step == 1) {
      std::memcpy(out, rows_.data(), rows_.size());
      return;
    }
    for (std::int64_t row = 0; row < end - begin; ++row) {
      std::memcpy(out + row * step * row_bytes, rows_.data() + row * row_bytes, static_cast<std::size_t>(row_bytes));
    }
  }

  void build_columns(const TensorRun& from, const Slice& slice) {
    const RowRun& run = from.run;
    const auto element = static_cast<std::int64_t>(size_of(dtype_));
    const std::int64_t all = map_.tensors[slice.tensor].rows();
    read(*from.parameter, run.first, run.count, slice.first, slice.count);
    if (run.count == all) return transpose(rows_.data(), run.count, slice.count, element, out_.data());
    for (std::int64_t row = 0; row < run.count; ++row) {
      const std::int64_t place = run.foreign_first + row * run.foreign_step;
      for (std::int64_t column = 0; column < slice.count; ++column) {
        std::memcpy(out_.data() + (column * all + place) * element,
                    rows_.data() + (row * slice.count + column) * element, static_cast<std::size_t>(element));
      }
    }
  }

  checkpoint::TensorReader reader_;
  const TensorMap& map_;
  DType dtype_;
  std::vector<std::vector<TensorRun>> runs_;  // by tensor
  std::map<std::string, const checkpoint::Piece*> masters_;
  std::vector<std::byte> masters_bytes_, rows_, out_;
};

std::vector<Slice> slices_of(const TensorMap& map, DType dtype, const std::vector<std::size_t>& tensors,
                             std::int64_t slice_bytes) {
  std::vector<Slice> slices;
  for (const std::size_t index : tensors) {
    const MappedTensor& tensor = map.tensors[index];
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t row_bytes = tensor.shape.numel() / rows * static_cast<std::int64_t>(size_of(dtype));
    const std::int64_t step = std::max<std::int64_t>(1, slice_bytes / row_bytes);
    for (std::int64_t first = 0; first < rows; first += step) {
      slices.push_back({index, first, std::min(step, rows - first)});
    }
  }
  return slices;
}

/// Digest of the digests of all slices of a file, in their order; on rank 0. Each rank gives those of its slices:
/// rank, rank + size ...
std::string combined(Communicator& world, const std::vector<std::string>& mine, std::size_t slices) {
  const std::vector<std::string> texts = gather_text(world, fmt::format("{}", fmt::join(mine, " ")), 0);
  if (world.rank() != 0) return {};
  std::vector<std::istringstream> streams;
  for (const std::string& text : texts) streams.emplace_back(text);
  Digest digest;
  for (std::size_t i = 0; i < slices; ++i) {
    std::string part;
    streams[i % streams.size()] >> part;
    digest.update(part.data(), part.size());
  }
  return digest.hex();
}

class Exporter {
 public:
  Exporter(TensorBuilder& builder, const TensorMap& map, DType dtype, TensorDestination& destination,
           Communicator& world, std::int64_t slice_bytes)
      : builder_(builder),
        map_(map),
        dtype_(dtype),
        destination_(destination),
        world_(world),
        slice_bytes_(slice_bytes) {}

  ExportResult run() {
    ExportResult result;
    for (std::size_t file = 0; file < destination_.files().size(); ++file) {
      slices_ = slices_of(map_, dtype_, destination_.files()[file], slice_bytes_);
      if (is_whole(file)) {
        log::info("{} is there and whole: kept", destination_.file_name(file));
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
  /// Calls `function` with this rank's slices, and the position of their first element.
  template <class Function>
  void for_each_of_mine(const Function& function) {
    for (std::size_t i = static_cast<std::size_t>(world_.rank()); i < slices_.size();
         i += static_cast<std::size_t>(world_.size())) {
      const Shape& shape = map_.tensors[slices_[i].tensor].shape;
      function(slices_[i], slices_[i].first * (shape.numel() / shape[0]));
    }
  }

  bool is_whole(std::size_t file) {
    std::string stated;
    collectively(world_, [&] { stated = destination_.open_existing(file); });
    if (broadcast_text(world_, stated, 0).empty()) return false;
    std::vector<std::string> digests;
    std::vector<std::byte> bytes;
    collectively(world_, [&] {
      TRIREME_CHECK(!stated.empty(), EnvironmentError,
                    "{} is not there on all nodes: an export needs a folder that all share",
                    destination_.file_name(file));
      for_each_of_mine([&](const Slice& slice, std::int64_t first) {
        const Shape& shape = map_.tensors[slice.tensor].shape;
        bytes.resize(static_cast<std::size_t>(slice.count * (shape.numel() / shape[0])) * size_of(dtype_));
        destination_.read(slice.tensor, first, bytes);
        digests.push_back(digest(bytes.data(), bytes.size()));
      });
      destination_.close();
    });
    const std::string found = combined(world_, digests, slices_.size());
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
        for_each_of_mine([&](const Slice& slice, std::int64_t first) {
          const std::span<const std::byte> bytes = builder_.build(slice);
          destination_.write(slice.tensor, first, bytes);
          digests.push_back(digest(bytes.data(), bytes.size()));
        });
        destination_.close();
      });
      const std::string all = combined(world_, digests, slices_.size());
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
  std::int64_t slice_bytes_;
  std::vector<Slice> slices_;  // those of the present file
};

}  // namespace

std::vector<ForeignTensor> tensors_of(const TensorMap& map, DType dtype) {
  std::vector<ForeignTensor> tensors;
  for (const MappedTensor& tensor : map.tensors) tensors.push_back({tensor.name, dtype, tensor.shape});
  return tensors;
}

ExportResult export_weights(checkpoint::StepReader& step, const TensorMap& map, DType dtype,
                            TensorDestination& destination, Communicator& world, std::int64_t slice_bytes) {
  std::optional<TensorBuilder> builder;
  collectively(world, [&] { builder.emplace(step, map, dtype); });
  return Exporter(*builder, map, dtype, destination, world, slice_bytes).run();
}

}  // namespace trireme::exchange
