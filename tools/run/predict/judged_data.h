// The samples by which a trained model is judged: a part of its run's own data, or all of others,
// always as its snapshot states the coding.
#pragma once

#include <optional>

#include "tools/run/data/session_data.h"
#include "tools/run/predict/trained_model.h"

namespace tools {

// Reads the data for this model, on one rank. Data whose digest is not the run's, or unknown where
// the command line names data, are a hold-out: all rows and the whole text are in the test part. If
// the command line asks for other samples of the data than the run's (--limit, --seed), the data
// are first read as the run read them, to compare the digest.
// Lines about that, and about what the model lacks, are added to the warnings. A snapshot without a
// statement needs the run's own data: to judge by them, or to learn its coding again. Throws
// io::DataError where they are not there. Weights of no run, and snapshots without a digest of the
// data, are judged by data that are coded by themselves then, with a warning.
void read_judged_data(const ModelReference& model, const io::DatasetOptions& options,
                      LoadedData& loaded);

// How the run read the data that lie where `given` says. Nothing: it read another data set, or
// none.
std::optional<io::DatasetOptions> as_the_run(const ModelReference& model,
                                             const io::DatasetOptions& given);

}  // namespace tools
