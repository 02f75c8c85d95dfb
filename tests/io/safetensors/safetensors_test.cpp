// Hostile and damaged safetensors files: each is an error that names the fault, and none is read beyond its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "io/safetensors/safetensors_output.hpp"
#include "io/safetensors/safetensors_source.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

using exchange::ForeignTensor;
using test::message_of;
using testing::HasSubstr;

std::string header_error(const std::string& header, std::int64_t data_bytes = 4) {
  return message_of<DataError>([&] { parse_safetensors_header(header, data_bytes, "m.safetensors"); });
}

/// A header with one tensor, whose fields these are.
std::string one(const std::string& fields) { return "{\"a\": {" + fields + "}}"; }

void write_file(const std::string& path, const std::string& header, const std::string& data,
                std::optional<std::uint64_t> length = {}) {
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t stated = length.value_or(header.size());
  file.write(reinterpret_cast<const char*>(&stated), sizeof stated);
  file << header << data;
}

TEST(SafetensorsHeader, TensorsOfEveryTypeReadInTheOrderOfTheirBytes) {
  const SafetensorsHeader header = parse_safetensors_header(
      R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[10,14]},"__metadata__":{"format":"pt","x":"y"},
          "a":{"data_offsets":[2,10],"dtype":"I64","shape":[]},"c":{"dtype":"BF16","shape":[0,5],"data_offsets":[14,14]},
          "d":{"dtype":"F16","shape":[1,1],"data_offsets":[0,2]}}   )",
      14, "m.safetensors");
  ASSERT_EQ(header.entries.size(), 4);
  EXPECT_EQ(header.entries[0].tensor.name, "d");
  EXPECT_EQ(header.entries[0].tensor.dtype, DType::fp16);
  EXPECT_EQ(header.entries[1].tensor.shape, Shape{});
  EXPECT_EQ(header.entries[2].begin, 10);
  EXPECT_EQ(header.entries[3].tensor.shape, (Shape{0, 5}));
  EXPECT_EQ(header.metadata.at("x"), "y");
}

TEST(SafetensorsHeader, EveryFaultIsNamed) {
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  EXPECT_EQ(header_error(one(good)), "nothing was thrown");
  const std::pair<std::string, const char*> faults[] = {
      {"", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {"{", "not JSON"},
      {one(good) + "x", "not JSON"},
      {one(good) + "{}", "not JSON"},
      {"{}", "have 0 bytes, but 4 follow"},
      {R"({"a": 1})", "has a number in 'a'"},
      {R"({"a": [1]})", "has a list in 'a'"},
      {R"({"a": "F32"})", "has a string in 'a'"},
      {R"({"a": null})", "has null in 'a'"},
      {R"({"a": {"b": {}}})", "has a field 'b'"},
      {one(R"("dtype":{"x":1})"), "has an object in 'a'"},
      {one(R"("shape":[[1]])"), "has a list in 'a'"},
      {one(good + R"(,"more":1)"), "has a field 'more'"},
      {one(good + R"(,"dtype":"F32")"), "a field occurs twice"},
      {one(good + R"(,"shape":[1])"), "a field occurs twice"},
      {"{\"a\": {" + good + "}, \"a\": {" + good + "}}", "names 'a' twice"},
      {R"({"__metadata__": {"x": "1", "x": "2"}})", "'x' twice"},
      {R"({"__metadata__": {"x": 1}})", "a number in '__metadata__'"},
      {R"({"__metadata__": {}, "__metadata__": {}})", "twice"},
      {one(R"("dtype":"F32","shape":[1])"), "lacks its dtype"},
      {one(R"("dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4])"), "has the type 'F8_E4M3'"},
      {one(R"("dtype":"","shape":[4],"data_offsets":[0,4])"), "has the type ''"},
      {one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "a negative number"},
      {one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), "not whole"},
      {one(R"("dtype":"F32","shape":[1,1,1,1,1,1],"data_offsets":[0,4])"), "more than 5 dimensions"},
      {one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"), "beyond 63 bits"},
      {one(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4])"), "not whole"},
      {one(R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])"), "is not its size"},
      {one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), "is not its size"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "is not its size"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "is not its size"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), "lacks its dtype"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), "lacks its dtype"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "begins at byte 4, but the one before ends at 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "begins at byte 0, but the one before ends at 4"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       "begins at byte 2, but the one before ends at 3"},
      {one(R"("dtype":"U8","shape":[3],"data_offsets":[0,3])"), "have 3 bytes, but 4 follow the header"},
      {one(R"("dtype":"U8","shape":[5],"data_offsets":[0,5])"), "have 5 bytes, but 4 follow the header"},
      {"{\"a\": " + std::string(100'000, '[') + "}", "has a list in 'a'"},
      {"{\"a\": " + std::string(100'000, '{') + "}", "not JSON"},
      {"{\"" + std::string(5000, 'n') + "\": {" + good + "}}", "a name of 5000 bytes"},
      {"{\"a\xff\": {" + good + "}}", "not JSON"},
  };
  for (const auto& [header, message] : faults)
    EXPECT_THAT(header_error(header), HasSubstr(message)) << header.substr(0, 200);
}

TEST(SafetensorsFile, TruncatedAndInconsistentFilesAreErrors) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "m.safetensors";
  const auto error = [&] { return message_of<DataError>([&] { SafetensorsFile file(path); }); };
  std::ofstream(path) << "1234567";
  EXPECT_THAT(error(), HasSubstr("has 7 bytes: it was cut off"));
  write_file(path, "{}", "", 100'000'001);
  EXPECT_THAT(error(), HasSubstr("states a header of 100000001 bytes, but the limit is 100000000"));
  write_file(path, "{}", "", ~std::uint64_t{0});
  EXPECT_THAT(error(), HasSubstr("but the limit is"));
  write_file(path, "{}", "", 3);
  EXPECT_THAT(error(), HasSubstr("states a header of 3 bytes, but has only 10"));
  write_file(path, R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abc");
  EXPECT_THAT(error(), HasSubstr("4 bytes, but 3 follow the header: it was cut off"));
  EXPECT_THAT(message_of<IoError>([&] { SafetensorsFile file(folder / "absent"); }), HasSubstr("cannot open"));
  EXPECT_THAT(message_of<DataError>([&] { SafetensorsFile file(folder.path()); }), HasSubstr("not a regular file"));
}

TEST(SafetensorsSource, AnIndexAndItsFilesMustAgree) {
  const test::TemporaryDirectory folder;
  const auto header = [](const char* name) {
    return fmt::format(R"({{"{}":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}})", name);
  };
  write_file(folder / "model-1.safetensors", header("a"), "12");
  write_file(folder / "model-2.safetensors", header("b"), "34");
  const auto index = [&](const std::string& text) {
    std::ofstream(folder / safetensors_index_name) << text;
    return message_of<DataError>([&] { SafetensorsSource source(folder.path()); });
  };
  EXPECT_EQ(index(R"({"metadata": {"total_size": 4, "x": [1, {}]},
                      "weight_map": {"b": "model-2.safetensors", "a": "model-1.safetensors"}})"),
            "nothing was thrown");
  SafetensorsSource source(folder.path());
  std::byte byte{};
  source.read(source.tensors()[0].name == "b" ? 0 : 1, 1, std::span(&byte, 1));
  EXPECT_EQ(static_cast<char>(byte), '4');

  EXPECT_THAT(index("{"), HasSubstr("not JSON"));
  EXPECT_THAT(index("{}"), HasSubstr("no 'weight_map'"));
  EXPECT_THAT(index(R"({"weight_map": "x"})"), HasSubstr("something else than names"));
  EXPECT_THAT(index(R"({"weight_map": {"a": 1}})"), HasSubstr("something else than names"));
  EXPECT_THAT(index(R"({"weight_map": {"a": {}}})"), HasSubstr("something else than names"));
  EXPECT_THAT(index(R"({"weight_map": {}, "weight_map": {}})"), HasSubstr("two members"));
  EXPECT_THAT(index(R"({"weight_map": {"a": "../model-1.safetensors"}})"), HasSubstr("refused"));
  EXPECT_THAT(index(R"({"weight_map": {"a": ""}})"), HasSubstr("refused"));
  EXPECT_THAT(index(R"({"weight_map": {"a": "model-1.safetensors", "a": "model-2.safetensors"}})"), HasSubstr("twice"));
  EXPECT_THAT(index(R"({"weight_map": {"b": "model-1.safetensors"}})"), HasSubstr("does not name"));
  EXPECT_THAT(index(R"({"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors"}})"),
              HasSubstr("expects in"));
  EXPECT_THAT(index(R"({"weight_map": {"a": "model-1.safetensors", "c": "model-1.safetensors"}})"),
              HasSubstr("expects the tensor 'c'"));
  write_file(folder / "model.safetensors", header("c"), "56");
  EXPECT_EQ(SafetensorsSource(folder.path()).tensors()[0].name, "c") << "a single file comes before an index";
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::remove(folder / safetensors_index_name);
  EXPECT_THAT(message_of<DataError>([&] { SafetensorsSource none(folder.path()); }), HasSubstr("there is neither"));
}

TEST(SafetensorsOutput, RemovesTheConfigurationOfAnEarlierExportFirst) {
  const test::TemporaryDirectory folder;
  const std::string config = folder / "config.json";
  SafetensorsOutput output(folder.path(), {{"a", DType::fp32, {4}}}, 30, "x");
  for (int times = 0; times < 2; ++times) {  // with config.json, then without
    if (times == 0) std::ofstream(config) << "{}";
    output.prepare_folder();
    EXPECT_EQ(std::filesystem::exists(config), times == 0);
    output.open(0, output.begin(0));
    EXPECT_FALSE(std::filesystem::exists(config));
    output.close();
    output.abandon();
  }
  std::filesystem::create_directory(config);
  EXPECT_THAT(message_of<IoError>([&] { output.begin(0); }), HasSubstr("cannot delete " + config));
}

TEST(SafetensorsOutput, FilesAreDividedBySizeAndForeignOnesRefused) {
  const test::TemporaryDirectory folder;
  const std::vector<ForeignTensor> tensors = {{"a", DType::fp32, {4}},
                                              {"b\"\\\xc3\xa9", DType::bf16, {2, 3}},
                                              {"c", DType::fp32, {100}},
                                              {"d", DType::fp32, {1}}};
  const SafetensorsOutput output(folder.path(), tensors, 30, "x");
  EXPECT_THAT(output.files(),
              testing::ElementsAre(testing::ElementsAre(0, 1), testing::ElementsAre(2), testing::ElementsAre(3)));
  EXPECT_EQ(output.file_name(1), "model-00002-of-00003.safetensors");
  EXPECT_EQ(output.total_bytes(), 16 + 12 + 400 + 4);
  for (const char* name : {"model-00002-of-00003.safetensors.partial-1234abcd", "notes.partial-1", "config.json"}) {
    std::ofstream(folder / name) << "";
  }
  output.prepare_folder();
  EXPECT_FALSE(std::filesystem::exists(folder / "model-00002-of-00003.safetensors.partial-1234abcd"));
  EXPECT_TRUE(std::filesystem::exists(folder / "notes.partial-1"));
  EXPECT_TRUE(std::filesystem::exists(folder / "config.json"));
  std::ofstream(folder / "model.safetensors") << "";
  EXPECT_THAT(message_of<ConfigError>([&] { output.prepare_folder(); }), HasSubstr("another export"));
  const std::string header = safetensors_header(tensors, {{"format", "pt"}});
  EXPECT_EQ(header.size() % 8, 0);
  EXPECT_EQ(parse_safetensors_header(header, output.total_bytes(), "m").entries[1].tensor.name, "b\"\\\xc3\xa9");
}

}  // namespace
}  // namespace trireme::io
