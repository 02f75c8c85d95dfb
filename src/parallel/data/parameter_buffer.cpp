#include "src/parallel/data/parameter_buffer.hpp"

#include <algorithm>
#include <utility>

namespace trireme::parallel {
namespace {

bool gradient_shards(const DataParallelOptions& options) {
  return options.sharding == DataSharding::optimizer_and_gradients;
}

bool uses_work(const DataParallelOptions& options) {
  return options.low_precision_gradients || gradient_shards(options);
}

std::int64_t bucket_limit(const DataParallelOptions& options, int ranks) {
  if (options.bucket_elements > 0) return options.bucket_elements;
  if (!options.overlap_reduce && !options.overlap_gather) return 0;
  return std::max<std::int64_t>(40'000'000, std::int64_t{1'000'000} * ranks);
}

}  // namespace

void validate(const DataParallelOptions& options, DType dtype) {
  TRIREME_CHECK(!options.low_precision_gradients || accumulation_type(dtype) != dtype, ConfigError,
                "main gradients of 16 bits need a 16-bit training type, not {}", name_of(dtype));
  TRIREME_CHECK(!options.low_precision_gradients || !gradient_shards(options), ConfigError,
                "ZeRO 2 keeps its shard of the gradients in fp32, in which micro-batches are summed. Leave out "
                "<main_grads_dtype>.");
}

BufferLayout ParameterBuffer::make_layout(DType dtype, const std::vector<Parameter>& parameters,
                                          const DataParallelOptions& options, int ranks) {
  validate(options, dtype);
  return {dtype, parameters,
          BufferSplit{options.sharding == DataSharding::none ? 1 : ranks, bucket_limit(options, ranks),
                      gradient_shards(options)}};
}

std::vector<std::int64_t> ParameterBuffer::work_offsets(const DataParallelOptions& options, const BufferLayout& layout,
                                                        std::int64_t& elements) {
  elements = 0;
  if (!uses_work(options)) return {};
  // Two in turn where one unit's gradients are in flight while the next one's are computed.
  const std::size_t turns = gradient_shards(options) && options.overlap_reduce ? 2 : 1;
  std::int64_t max_unit_elements = 0;
  for (const ParameterUnit& unit : layout.units()) {
    if (!unit.has_embedding) max_unit_elements = std::max(max_unit_elements, unit.size);
  }
  std::vector<std::int64_t> offsets;
  elements = max_unit_elements * static_cast<std::int64_t>(turns);
  for (std::size_t g = 0; g < layout.units().size(); ++g) {
    const bool own = layout.units()[g].has_embedding;
    offsets.push_back(own ? elements : max_unit_elements * static_cast<std::int64_t>(g % turns));
    if (own) elements += layout.units()[g].size;
  }
  return offsets;
}

ParameterBuffer::ParameterBuffer(Backend& backend, DType dtype, std::vector<Parameter> parameters,
                                 const DataParallelOptions& options, int shards, int shard)
    : parameters_(std::move(parameters)),
      options_(options),
      layout_(make_layout(dtype, parameters_, options, shards)),
      shard_(options.sharding == DataSharding::none ? 0 : shard) {
  const DType accumulated = accumulation_type(dtype);
  std::int64_t work_elements = 0;
  work_offsets_ = work_offsets(options, layout_, work_elements);
  const auto make = [&](Tensor& tensor, DType type, std::int64_t elements) {
    tensor = Tensor(backend, type, {elements});
    backend.elementwise().fill(backend.compute_stream(), 0, tensor);
  };
  make(values_, dtype, layout_.elements());
  if (!gradient_shards(options))
    make(gradients_, options.low_precision_gradients ? dtype : accumulated, layout_.elements());
  if (uses_work(options)) {
    make(shard_gradients_, accumulated, layout_.shard_elements());
    make(work_, accumulated, work_elements);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    const auto unit = static_cast<std::size_t>(parameter.unit);
    const std::int64_t size = parameter.stored_numel();
    parameter.value = values().flat(layout_.offset(i), size).reshape(parameter.storage);
    parameter.gradient =
        unit_gradients(unit).flat(layout_.offset(i) - layout_.units()[unit].begin, size).reshape(parameter.storage);
  }
}

const Parameter& ParameterBuffer::at(const std::string& name) const {
  const Parameter* found = find(name);
  TRIREME_CHECK(found != nullptr, ShapeError, "this rank has no parameter '{}'", name);
  return *found;
}

const Parameter* ParameterBuffer::find(const std::string& name) const {
  const auto found = std::ranges::find(parameters_, name, &Parameter::name);
  return found == parameters_.end() ? nullptr : &*found;
}

TensorView ParameterBuffer::unit_gradients(std::size_t unit) const {
  const ParameterUnit& bounds = layout_.units()[unit];
  return has_work() ? work_.view().flat(work_offsets_[unit], bounds.size) : gradients().flat(bounds.begin, bounds.size);
}

TensorView ParameterBuffer::bucket_gradients(std::size_t bucket) const {
  const Bucket& bounds = layout_.buckets()[bucket];
  if (!gradient_shards(options_)) return gradients().flat(bounds.begin, bounds.size);
  const auto unit = static_cast<std::size_t>(parameters_[bounds.first].unit);
  return unit_gradients(unit).flat(bounds.begin - layout_.units()[unit].begin, bounds.size);
}

TensorView ParameterBuffer::bucket_values(std::size_t bucket) const {
  const Bucket& bounds = layout_.buckets()[bucket];
  return values().flat(bounds.begin, bounds.size);
}

TensorView ParameterBuffer::own_shard(TensorView bucket) const {
  const std::int64_t size = bucket.numel() / layout_.shards();
  return bucket.flat(shard_ * size, size);
}

TensorView ParameterBuffer::shard_gradients(std::size_t bucket) const {
  if (!has_work()) return own_shard(bucket_gradients(bucket));
  return shard_gradients_.view().flat(shard_offset(bucket), layout_.buckets()[bucket].size / layout_.shards());
}

TensorView ParameterBuffer::shard_gradient(std::size_t i) const {
  const ShardRange own = shard_range(i);
  return shard_gradients(layout_.bucket_of(i)).flat(own.at, own.count);
}

void ParameterBuffer::clear_gradients(Backend& backend) {
  const TensorView main = gradients_.view() ? gradients_ : shard_gradients_;
  backend.elementwise().fill(backend.compute_stream(), 0, main);
}

void ParameterBuffer::sum_partial_gradients(Backend& backend, Communicator& tensor_group, Arena& workspace) {
  Stream& stream = backend.compute_stream();
  std::vector<TensorView> gradients;
  std::int64_t total = 0;
  const auto is_partial = [](const Parameter& p) { return p.gradient_is_partial; };
  for (std::size_t bucket = 0; bucket < layout_.buckets().size(); ++bucket) {
    for_each_stretch(bucket, is_partial, [&](bool partial, std::int64_t begin, std::int64_t count) {
      if (!partial) return;
      gradients.push_back(shard_gradients(bucket).flat(begin, count));
      total += count;
    });
  }
  if (total == 0) return;
  const ArenaScope scope(workspace);
  const TensorView message = workspace.allocate(gradients.front().dtype(), {total});
  const auto for_each_gradient = [&](const auto& copy) {
    std::int64_t offset = 0;
    for (const TensorView gradient : gradients) {
      copy(gradient, message.flat(offset, gradient.numel()));
      offset += gradient.numel();
    }
  };
  ElementwiseKernels& elementwise = backend.elementwise();
  for_each_gradient([&](TensorView gradient, TensorView packed) { elementwise.convert(stream, gradient, packed); });
  tensor_group.all_reduce(stream, message, ReduceOp::sum).wait(stream);
  for_each_gradient([&](TensorView gradient, TensorView packed) { elementwise.convert(stream, packed, gradient); });
}

}  // namespace trireme::parallel
