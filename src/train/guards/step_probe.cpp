#include "src/train/guards/step_probe.hpp"

#include "src/backend/host_numbers.hpp"
#include "src/train/guards/not_finite.hpp"

namespace trireme::train {

StepProbe::StepProbe(ParallelModel& model)
    : model_(model),
      chunks_(model.shard().chunks.size()),
      stages_(model.grid().pipeline_size()),
      stage_(model.communicators().pipeline->rank()),
      virtual_stages_(static_cast<std::int64_t>(chunks_) * stages_) {
  const std::size_t buckets = model.parameters().layout().buckets().size();
  sums_ = Tensor(model.backend(), DType::fp64, {static_cast<std::int64_t>(index_of(buckets)) + 1});
  before_ = Tensor(model.backend(), DType::fp64, sums_.view().shape());
  model.stage().set_probe(this);
  model.data_parallel().observe(
      sums_.view().flat(static_cast<std::int64_t>(index_of(0)), static_cast<std::int64_t>(buckets)));
}

StepProbe::~StepProbe() {
  model_.stage().set_probe(nullptr);
  model_.data_parallel().observe({});
}

void StepProbe::begin(bool search) {
  model_.backend().copy_within(model_.backend().compute_stream(), sums_.view(), before_);
  model_.backend().elementwise().fill(model_.backend().compute_stream(), 0, sums_);
  search_ = search;
  bad_output_.reset();
}

std::vector<double> StepProbe::sums(Step step) const {
  Backend& backend = model_.backend();
  std::vector<double> sums =
      read_numbers(backend, backend.compute_stream(), step == Step::latest ? sums_.view() : before_.view());
  sums.pop_back();
  return sums;
}

std::int64_t StepProbe::order_of(std::size_t i) const {
  if (i >= 2 * chunks_) return 2 * virtual_stages_ + 1;
  const std::int64_t virtual_stage = static_cast<std::int64_t>(i % chunks_) * stages_ + stage_;
  return i < chunks_ ? virtual_stage : 2 * virtual_stages_ - virtual_stage;
}

void StepProbe::add(std::size_t i, ConstTensorView x) {
  Backend& backend = model_.backend();
  backend.reduce().sum_squares(backend.compute_stream(), x, sums_.view().flat(static_cast<std::int64_t>(i), 1));
}

void StepProbe::after_layer(int layer, ConstTensorView y) {
  if (!search_ || (bad_output_ && bad_output_->layer <= layer)) return;
  const std::int64_t bad = count_not_finite(model_.backend(), y, sums_.view().flat(sums_.view().numel() - 1, 1));
  if (bad > 0) bad_output_ = {layer, bad, y.numel()};
}

void StepProbe::after_forward(int chunk, ConstTensorView y) { add(static_cast<std::size_t>(chunk), y); }

void StepProbe::after_backward(int chunk, ConstTensorView dx) { add(chunks_ + static_cast<std::size_t>(chunk), dx); }

}  // namespace trireme::train
