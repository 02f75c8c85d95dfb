#pragma once

#include <string>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"

namespace trireme::io {

// Megatron-LM's indexed data sets, two files. PREFIX.bin is the tokens alone. PREFIX.idx, little-endian and unaligned:
//
//   char magic[9] "MMIDIDX\0\0", u64 version 1, u8 type of a token, u64 sequences, u64 n,
//   i32 tokens[sequences], i64 first byte in PREFIX.bin[sequences], i64 first sequence of each document[n]
//
// n is the number of documents plus one. The type is 1 u8, 2 i8, 3 i16, 4 i32, 5 i64 or 8 u16 (6 and 7 are floats).
// Megatron-LM writes u16 for vocabularies below 65,500 ids, else i32. For GPT a document is one sequence; for BERT each
// sequence of a document is a sentence.

enum class Sequences {
  automatic,  ///< sentences if any document has several
  sentences   ///< sentences, even if each document has only one
};

/// Adds the documents of PREFIX.bin and PREFIX.idx to `writer`, in constant memory if sequences are stored in order.
/// Throws DataError naming file, byte and fault; also if sequences overlap or PREFIX.bin contains other bytes.
void import_megatron(const std::string& prefix, CorpusWriter& writer, Sequences sequences = Sequences::automatic);

/// Writes the two files, byte for byte as Megatron-LM's builder does from the same documents: PREFIX.idx last, once
/// everything else is complete. Every block of the corpus is checked first. Throws DataError if a document has 2^31
/// tokens or more, IoError.
void export_megatron(const CorpusStore& store, const std::string& prefix);

/// Adds the documents of a token file of llm.c to `writer`. The file is little-endian. It begins with int32
/// header[256]: magic, version, number of tokens, and unused words. The tokens follow: uint16 of GPT-2 (magic 20240520,
/// version 1) or uint32 of Llama 3 (magic 20240801, version 7). llm.c puts the end-of-document token before each
/// document, so the file is split before every `end_of_document`. Throws DataError naming file, byte and fault.
void import_llmc(const std::string& path, std::int32_t end_of_document, CorpusWriter& writer);

/// Returns whether the file has the header of a token file of llm.c.
bool is_llmc(const std::string& path);

/// Returns PREFIX if `path` is PREFIX, PREFIX.bin or PREFIX.idx, and PREFIX.idx exists; else an empty text.
std::string megatron_prefix(const std::string& path);

/// Throws DataError if the file is no HDF5 file but text, tokens of another program or a known container: what it is,
/// and the command that makes a corpus of it. Other bytes pass.
void check_is_hdf5(const std::string& path);

}  // namespace trireme::io
