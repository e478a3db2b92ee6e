// Reads a text in chunks that can be encoded independently.
#pragma once

#include <cstdint>
#include <string>

#include "io/data/files/data_file.h"

namespace tools {

// How a text may be divided: at line ends, which the tokenizer's expressions do not cross, or not
// at all.
enum class ChunkEnds { kLines, kNone };

class TextChunks {
 public:
  // Throws as DataFile, and DataError for a text in UTF-16.
  TextChunks(const std::string& path, std::size_t chunk_bytes, ChunkEnds ends);

  // Reads at least chunk_bytes and up to a line end; false at the end of the text. Without line
  // ends the chunk is the whole text. Throws DataError for a chunk of more than 256 MiB.
  bool next(std::string& chunk);

 private:
  bool fill();

  io::DataFile file_;
  const std::size_t chunk_bytes_;
  const ChunkEnds ends_;
  std::string text_;  // read, and not yet returned
  bool at_end_ = false;
};

}  // namespace tools
