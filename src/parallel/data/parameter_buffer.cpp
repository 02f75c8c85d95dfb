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
  if (!options.overlap_reduce && !options.overlap_gather && !options.updates_beside_forward()) return 0;
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
                                          const DataParallelOptions& options,
                                          const std::vector<GradientGroupMember>& members) {
  validate(options, dtype);
  BufferSplit split{{}, bucket_limit(options, members.front().ranks), gradient_shards(options)};
  for (const GradientGroupMember& member : members) {
    split.shards.push_back(options.sharding == DataSharding::none ? 1 : member.ranks);
  }
  return {dtype, parameters, split};
}

std::int64_t ParameterBuffer::place_work() {
  if (!uses_work(options_)) return 0;
  // Two in turn where one unit's gradients are in flight while the next one's are computed.
  const std::size_t turns = gradient_shards(options_) && options_.overlap_reduce ? 2 : 1;
  std::int64_t elements = 0;
  for (std::size_t group = 0; group < layout_.gradient_groups(); ++group) {
    const std::vector<ParameterUnit>& units = layout_.units(group);
    std::int64_t max_unit_elements = 0;
    for (const ParameterUnit& unit : units) {
      if (!unit.has_embedding) max_unit_elements = std::max(max_unit_elements, unit.size);
    }
    const std::int64_t begin = elements;
    elements += max_unit_elements * static_cast<std::int64_t>(turns);
    std::vector<std::int64_t>& offsets = work_offsets_.emplace_back();
    for (std::size_t u = 0; u < units.size(); ++u) {
      const bool own = units[u].has_embedding;
      offsets.push_back(own ? elements : begin + max_unit_elements * static_cast<std::int64_t>(u % turns));
      if (own) elements += units[u].size;
    }
  }
  return elements;
}

ParameterBuffer::ParameterBuffer(Backend& backend, DType dtype, std::vector<Parameter> parameters,
                                 const DataParallelOptions& options, const std::vector<GradientGroupMember>& members,
                                 Allocator* memory)
    : parameters_(std::move(parameters)),
      options_(options),
      layout_(make_layout(dtype, parameters_, options, members)),
      sums_(std::make_unique<GradientSums>(parameters_.size())) {
  for (const GradientGroupMember& member : members)
    shards_.push_back(options.sharding == DataSharding::none ? 0 : member.rank);
  const DType accumulated = accumulation_type(dtype);
  const std::int64_t work_elements = place_work();
  const auto make = [&](Tensor& tensor, DType type, std::int64_t elements) {
    tensor = Tensor(memory == nullptr ? backend : *memory, type, {elements});
    backend.elementwise().fill(backend.compute_stream(), 0, tensor);
  };
  make(values_, dtype, layout_.all_elements());
  if (!gradient_shards(options))
    make(gradients_, options.low_precision_gradients ? dtype : accumulated, layout_.elements());
  if (uses_work(options)) {
    make(shard_gradients_, accumulated, layout_.shard_elements());
    make(work_, accumulated, work_elements);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = parameters_[i];
    const ParameterUnit& unit = layout_.units(group_of(i))[unit_of(i)];
    const std::int64_t size = parameter.stored_numel();
    parameter.value = values().flat(layout_.offset(i), size).reshape(parameter.storage);
    if (parameter.frozen) continue;
    parameter.gradient =
        unit_gradients(group_of(i), unit_of(i)).flat(layout_.offset(i) - unit.begin, size).reshape(parameter.storage);
    if (!has_work()) parameter.sum = GradientSum(*sums_, i);
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

TensorView ParameterBuffer::unit_gradients(std::size_t gradient_group, std::size_t unit) const {
  const ParameterUnit& bounds = layout_.units(gradient_group)[unit];
  return has_work() ? work_.view().flat(work_offsets_[gradient_group][unit], bounds.size)
                    : gradients().flat(bounds.begin, bounds.size);
}

TensorView ParameterBuffer::bucket_gradients(std::size_t bucket) const {
  const Bucket& bounds = layout_.buckets()[bucket];
  if (!gradient_shards(options_)) return gradients().flat(bounds.begin, bounds.size);
  const std::size_t i = bounds.parameters.front(), group = group_of(i), unit = unit_of(i);
  return unit_gradients(group, unit).flat(bounds.begin - layout_.units(group)[unit].begin, bounds.size);
}

TensorView ParameterBuffer::bucket_values(std::size_t bucket) const {
  const Bucket& bounds = layout_.buckets()[bucket];
  return values().flat(bounds.begin, bounds.size);
}

TensorView ParameterBuffer::own_shard(std::size_t bucket, TensorView values) const {
  const Bucket& bounds = layout_.buckets()[bucket];
  return values.flat(shard_of(bounds) * bounds.shard_size(), bounds.shard_size());
}

TensorView ParameterBuffer::shard_gradients(std::size_t bucket) const {
  if (!has_work()) return own_shard(bucket, bucket_gradients(bucket));
  const Bucket& bounds = layout_.buckets()[bucket];
  return shard_gradients_.view().flat(bounds.shard_begin, bounds.shard_size());
}

TensorView ParameterBuffer::shard_gradient(std::size_t i) const {
  if (parameters_[i].frozen) return {static_cast<std::byte*>(nullptr), accumulation_type(values().dtype()), {0}};
  const ShardRange own = shard_range(i);
  return shard_gradients(layout_.bucket_of(i)).flat(own.at, own.count);
}

RangeTable ParameterBuffer::cleared_ranges() const {
  RangeTable table;
  std::int64_t begin = 0, end = 0;
  const auto close = [&] {
    if (begin != end) table.add(begin, end - begin);
  };
  for (const Bucket& bucket : layout_.buckets()) {
    for (const std::size_t i : bucket.parameters) {
      if (sums_->is_deferred(i)) continue;
      const std::int64_t first = layout_.offset(i);
      // Zeros between neighbours belong to a range.
      if (begin == end || first - end >= RangeTable::unit) {
        close();
        begin = first;
      }
      end = first + parameters_[i].stored_numel();
    }
  }
  close();
  return table;
}

void ParameterBuffer::clear_gradients(Backend& backend) {
  Stream& stream = backend.compute_stream();
  if (has_work()) return backend.elementwise().fill(stream, 0, gradients_.view() ? gradients_ : shard_gradients_);
  sums_->begin();
  if (!cleared_) {
    cleared_ = cleared_ranges();
    cleared_->upload(backend);
  }
  if (cleared_->elements() > 0) backend.optimizer().clear(stream, cleared_->ranges(), gradients_);
}

void ParameterBuffer::complete_gradients(Backend& backend, std::size_t bucket) {
  for (const std::size_t i : layout_.buckets()[bucket].parameters) {
    if (!sums_->is_undefined(i)) continue;
    sums_->next(i);
    backend.elementwise().fill(backend.compute_stream(), 0, parameters_[i].gradient);
  }
}

void ParameterBuffer::sum_partial_gradients(Backend& backend, std::span<const GradientGroup> groups, Arena& workspace) {
  Stream& stream = backend.compute_stream();
  ElementwiseKernels& elementwise = backend.elementwise();
  const auto is_partial = [](const Parameter& p) { return p.gradient_is_partial; };
  for (std::size_t group = 0; group < groups.size(); ++group) {
    std::vector<TensorView> gradients;
    std::int64_t total = 0;
    for (std::size_t bucket = 0; bucket < layout_.buckets().size(); ++bucket) {
      if (static_cast<std::size_t>(layout_.buckets()[bucket].gradient_group) != group) continue;
      for_each_stretch(bucket, is_partial, [&](bool partial, std::int64_t begin, std::int64_t count) {
        if (!partial) return;
        gradients.push_back(shard_gradients(bucket).flat(begin, count));
        total += count;
      });
    }
    if (total == 0) continue;
    const ArenaScope scope(workspace);
    const TensorView message = workspace.allocate(gradients.front().dtype(), {total});
    const auto for_each_gradient = [&](const auto& copy) {
      std::int64_t offset = 0;
      for (const TensorView gradient : gradients) {
        copy(gradient, message.flat(offset, gradient.numel()));
        offset += gradient.numel();
      }
    };
    for_each_gradient([&](TensorView gradient, TensorView packed) { elementwise.convert(stream, gradient, packed); });
    groups[group].tensor.all_reduce(stream, message, ReduceOp::sum).wait(stream);
    for_each_gradient([&](TensorView gradient, TensorView packed) { elementwise.convert(stream, packed, gradient); });
  }
}

}  // namespace trireme::parallel
