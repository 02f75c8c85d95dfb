// Pickles: values are read, and nothing is ever called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/torch/torch_archive.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::io {
namespace {

using test::message_of;
using testing::HasSubstr;

/// Bytes of a literal that has zeros.
template <std::size_t size>
std::string bytes(const char (&literal)[size]) {
  return {literal, size - 1};
}

std::string pickle_error(const std::string& pickle) {
  return message_of<DataError>([&] { PickleDocument document(pickle, "file.pkl"); });
}

TEST(Pickle, ValuesOfEveryKindAreRead) {
  const std::string pickle = bytes(
      "\x80\x04}(\x8c\x01"
      "aK\x07\x8c\x01"
      "bJ\xfe\xff\xff\xff\x8c\x01"
      "c\x8a\x03\x00\x00\x80\x8c\x01"
      "dG?\xf8\x00\x00\x00\x00\x00\x00\x8c\x01"
      "e\x88\x8c\x01"
      "fN\x8c\x01"
      "g](K\x01K\x02"
      "e\x8c\x01"
      "hC\x02xy\x8c\x01"
      "iI01\n\x8c\x01"
      "jL-5L\nu.");
  const PickleDocument document(pickle, "file.pkl");
  EXPECT_EQ(document.size_bytes(), pickle.size());
  const PickleValue root = document.root();
  EXPECT_EQ(root.find("a")->integer(), 7);
  EXPECT_EQ(root.find("b")->integer(), -2);
  EXPECT_EQ(root.find("c")->integer(), -8388608);
  EXPECT_EQ(root.find("d")->real(), 1.5);
  EXPECT_TRUE(root.find("e")->is(PickleKind::boolean) && root.find("e")->integer() == 1);
  EXPECT_TRUE(root.find("f")->is_none());
  ASSERT_EQ(root.find("g")->size(), 2);
  EXPECT_EQ(root.find("g")->item(1).integer(), 2);
  EXPECT_EQ(root.find("h")->text(), "xy");
  EXPECT_TRUE(root.find("i")->is(PickleKind::boolean));
  EXPECT_EQ(root.find("j")->integer(), -5);
  EXPECT_FALSE(root.find("z"));
}

TEST(Pickle, CallsAreRecordsWithTheirNames) {
  const std::string pickle = "cos\nsystem\n(S'touch called'\ntR.";
  const PickleDocument document(pickle, "file.pkl");
  EXPECT_TRUE(document.root().calls("os system"));
  EXPECT_EQ(document.root().arguments().item(0).text(), "touch called");
  EXPECT_EQ(document.root().description(), "a call of os system");
  // Refused by name where a tensor is expected.
  EXPECT_FALSE(TorchArchive::is_tensor(document.root()));
}

TEST(Pickle, DeepAndCyclicValuesTakeNoRecursion) {
  const std::string deep = std::string(1'000'000, ']') + std::string(999'999, 'a') + ".";
  EXPECT_EQ(pickle_error(deep), "nothing was thrown");
  const std::string cycle = bytes("]q\x00h\x00\x61.");
  const PickleDocument document(cycle, "file.pkl");
  EXPECT_EQ(document.root().item(0).item(0).item(0).size(), 1);
}

TEST(Pickle, EveryFaultIsNamedWithItsByte) {
  const std::pair<std::string, const char*> faults[] = {
      {"", "1 bytes expected, 0 left"},
      {"N", "1 bytes expected, 0 left"},
      {".", "not hold exactly one value"},
      {"NN.", "not hold exactly one value"},
      {"(N.", "not hold exactly one value"},
      {"0.", "the stack is empty"},
      {"(e.", "the stack is empty"},
      {"t.", "a mark is missing"},
      {"(0(tR.", "the stack is empty"},
      {"N(tR.", "the callee of a call is not a function"},
      {"cos\nsystem\nNR.", "the arguments of a call are not a tuple"},
      {"cos\nsystem", "a line does not end"},
      {"(Nd.", "a key has no value"},
      {"}(Nu.", "a key has no value"},
      {"NNa.", "items are added to a value that cannot hold any"},
      {"N}b.", "a state is set on a value that cannot have one"},
      {"cos\nx\n(tR}b}b.", "an object has two states"},
      {"g1\n.", "a reference to a value that does not exist"},
      {"gx\n.", "is not a number"},
      {"I1x\n.", "characters other than digits"},
      {"Fx\n.", "malformed"},
      {"Sx\n.", "has no quotes"},
      {bytes("\x80\x06N."), "protocol 6 is newer"},
      {bytes("X\xff\xff\xff\xffN."), "4294967295 bytes expected"},
      {bytes("\x95\xff\xff\xff\xff\xff\xff\xff\xffN."), "a frame is longer than the remaining data"},
      {bytes("\x82\x01."), "opcode 0x82 does not describe data"},
      {"Pkey\n.", "opcode 0x50 does not describe data"},
      {std::string("c") + std::string(2000, 'x') + "\ny\n.", "more than 1000 bytes"}};
  for (const auto& [pickle, problem] : faults) EXPECT_THAT(pickle_error(pickle), HasSubstr(problem)) << pickle;
  EXPECT_THAT(pickle_error("N0\xff"), HasSubstr("byte 2 of the pickled data"));
}

/// A file of torch.save before zip, with one float tensor of four elements; `call` describes the tensor.
std::string file_with(const std::string& call, const std::string& data = std::string(16, '\0')) {
  std::string file = bytes("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.");
  file += bytes("\x80\x02M\xe9\x03.") + bytes("\x80\x02}.") + call + "]S'0'\na.";
  return file + bytes("\x04\x00\x00\x00\x00\x00\x00\x00") + data;
}

std::string call_with(const std::string& offset, const std::string& sizes, const std::string& strides,
                      const std::string& type = "torch\nFloatStorage",
                      const std::string& function = "torch._utils\n_rebuild_tensor_v2") {
  return "c" + function + "\n((S'storage'\nc" + type + "\nS'0'\nS'cpu'\nI4\ntQI" + offset + "\n(" + sizes + "t(" +
         strides + "tI00\nNtR.";
}

std::string tensor_error(const std::string& file) {
  return message_of<DataError>([&] {
    const TorchArchive archive(std::as_bytes(std::span(file)), "file.pt");
    archive.tensor(archive.root(), "'w'");
  });
}

TEST(TorchArchive, TensorsAreWithinTheirStorage) {
  const std::string data = "abcdefghijklmnop";
  const std::string file = file_with(call_with("1", "I3\nI1\n", "I1\nI7\n"), data);
  const TorchArchive archive(std::as_bytes(std::span(file)), "file.pt");
  const StoredTensor tensor = archive.tensor(archive.root(), "'w'");
  EXPECT_EQ(tensor.shape, (Shape{3, 1}));
  EXPECT_EQ(tensor.dtype, DType::fp32);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()), data.substr(4));
}

TEST(TorchArchive, EveryFaultOfATensorIsNamed) {
  const std::pair<std::string, const char*> faults[] = {
      {call_with("1", "I4\n", "I1\n"), "beyond the end of its storage"},
      {call_with("-1", "I4\n", "I1\n"), "beyond the end of its storage"},
      {call_with("5", "I0\n", "I1\n"), "beyond the end of its storage"},
      {call_with("0", "I2\nI2\n", "I1\nI2\n"), "Only contiguous tensors are read"},
      {call_with("0", "I4\n", "I0\n"), "Only contiguous tensors are read"},
      {call_with("0", "I4\n", ""), "Only contiguous tensors are read"},
      {call_with("0", "I-4\n", "I1\n"), "not a number of at least 0"},
      {call_with("0", "S'4'\n", "I1\n"), "a size of 'w' is a text"},
      {call_with("0", "I4611686018427387904\nI4\n", "I4\nI1\n"), "they are damaged"},
      {call_with("0", "I1\nI1\nI1\nI1\nI1\nI1\n", "I1\nI1\nI1\nI1\nI1\nI1\n"), "at most 5 integers"},
      {call_with("0", "I4\n", "I1\n", "torch\nFloatStorage", "builtins\neval"),
       "'w' is a call of builtins eval, not a tensor"},
      {call_with("0", "I4\n", "I1\n", "torch\nFloat8_e5m2Storage"), "torch Float8_e5m2Storage as the class"},
      {"N.", "a storage that no tensor refers to"}};
  for (const auto& [call, problem] : faults) EXPECT_THAT(tensor_error(file_with(call)), HasSubstr(problem)) << call;
  const std::string good = call_with("0", "I4\n", "I1\n");
  EXPECT_EQ(tensor_error(file_with(good)), "nothing was thrown");
  EXPECT_THAT(tensor_error(file_with(good, "12345")), HasSubstr("it was cut off"));
  EXPECT_THAT(tensor_error("x"), HasSubstr("neither a zip archive nor a pickle"));
  EXPECT_THAT(tensor_error(bytes("\x80\x02N.")), HasSubstr("does not begin with the number"));
}

}  // namespace
}  // namespace trireme::io
