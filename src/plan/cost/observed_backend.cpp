#include "src/plan/cost/observed_backend.hpp"

#include "src/base/check.hpp"

namespace trireme::plan {

KernelCall ObservedBackend::named(KernelCall call) const {
  if (!call.product) return call;
  const ProductCall& product = *call.product;
  const std::int64_t outputs = call.kind == KernelKind::forward          ? product.n
                               : call.kind == KernelKind::input_gradient ? product.k
                                                                         : product.m;
  if (outputs == logits_columns_) call.kind = KernelKind::logits;
  return call;
}
void ObservedBackend::begin(Stream& stream, const KernelCall& call) {
  if (observer_ != nullptr) observer_->begin(stream, named(call));
}
void ObservedBackend::end(Stream& stream, const KernelCall& call) {
  if (observer_ != nullptr) observer_->end(stream, named(call));
}

template <class Copy>
void ObservedBackend::show(Stream& stream, const KernelCall& call, const Copy& copy) {
  begin(stream, call);
  copy();
  end(stream, call);
}
void ObservedBackend::copy_from_host(Stream& stream, ConstTensorView host, TensorView device) {
  show(stream, {KernelKind::inputs, bytes_of({host})}, [&] { inner().copy_from_host(stream, host, device); });
}
void ObservedBackend::copy_to_host(Stream& stream, ConstTensorView device, TensorView host) {
  show(stream, {KernelKind::results, bytes_of({device})}, [&] { inner().copy_to_host(stream, device, host); });
}

GraphRecorder& ObservedBackend::recorder() const {
  auto* recorder = dynamic_cast<GraphRecorder*>(&inner());
  TRIREME_CHECK(recorder != nullptr, ConfigError, "the backend {} has no graphs", inner().name());
  return *recorder;
}
std::unique_ptr<Graph> ObservedBackend::record(const std::function<void()>& enqueue) {
  return recorder().record(enqueue);
}
void ObservedBackend::copy_within(Stream& stream, ConstTensorView from, TensorView to) {
  show(stream, {KernelKind::copies, bytes_of({from, to})}, [&] { inner().copy_within(stream, from, to); });
}
std::size_t ObservedBackend::launches() const {
  const auto* recorder = dynamic_cast<const GraphRecorder*>(&inner());
  return recorder == nullptr ? 0 : recorder->launches();
}

}  // namespace trireme::plan
