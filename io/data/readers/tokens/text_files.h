// Reads text as a stream of byte tokens, and token streams from other programs.
#pragma once

#include <cstdint>
#include <string>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// The *.txt (or *.txt.gz) of options.directory, in the order of their names, one after the other;
// or that file, if it is one. A token is a byte; its id is its rank in the sorted set of the bytes
// of the whole text, which is NextTokens::vocabulary. The first int(0.9 n) of n tokens are for
// training, the rest for testing. A sample is a window of options.text.context tokens, its labels
// are the same window one token later. Windows for training start every options.text.stride tokens
// (0: the context, so that they do not overlap), those for testing every `context`, so that each
// label is counted once. With options.coding the vocabulary is the coding's, and other bytes are
// left out; with kHoldOut the whole text is for testing. Throws MissingFileError and DataError: no
// file, an empty one, parts shorter than context + 1; files that data_folder.h refuses.
DatasetSplits read_text_splits(const DatasetOptions& options);
bool is_text_name(const std::string& name);  // *.txt, *.txt.gz

// train.bin and val.bin (or .npy) of options.directory, as token_file.h reads them. Windows as
// above; the vocabulary size is the coding's, or else options.text.vocabulary_size, or one more
// than the highest id. Throws as above, as read_token_file() and DataError: an id outside the
// vocabulary (with its position).
DatasetSplits read_token_splits(const DatasetOptions& options);
// The largest tokenizer.json for a checkpoint, whose header has at most 100,000,000 bytes.
inline constexpr std::uint64_t kMaxStoredTokenizer = std::uint64_t{64} << 20;
// Returns the text of tokenizer.json in the folder of a data set of tokens or of a model; "" if
// there is none. It is not parsed: training needs no tokenizer. Throws as read_small_file(), also
// for a file of more than kMaxStoredTokenizer bytes.
std::string read_stored_tokenizer(const std::string& folder);

}  // namespace io
