"""This library, through its example program: every policy at every batch, in f32 and in its bf16 class."""
import json
import os
import subprocess
import tempfile

import job


def program(work):
    with tempfile.TemporaryDirectory() as scratch:
        prompts, out, stats = (os.path.join(scratch, name) for name in ("prompts", "out", "stats"))
        with open(prompts, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"ids": ids}) + "\n" for ids in work.ids)

        def generate(compute, policy, batch):
            subprocess.run([work.generate, "--target", work.target, "--draft", work.draft,
                            "--prompts", prompts, "--output", out, "--stats", stats,
                            "--policy", policy, "--batch", str(batch), "--draft-len", str(work.draft_len),
                            "--max-new", str(work.max_new), "--threads", str(work.threads),
                            "--compute", compute], check=True)
            with open(stats, encoding="utf-8") as file:
                totals.update(json.load(file))
            with open(out, encoding="utf-8") as file:
                return [json.loads(line)["ids"] for line in file], totals["seconds"]

        totals = {}
        def run(compute, policy, batch):
            row = {"peer": "ours (%s)" % compute, "version": version, "method": policy, "batch": batch}
            work.measure(row,
                         lambda: generate(compute, policy, batch),
                         lambda: "" if policy == "plain" else
                         "%.2f tokens a row and round" % totals["tokens_per_row_round"])

        generate("f32", "plain", 1)
        version = totals["fingerprint"].split(";")[0]
        for compute in ("f32", "bf16"):
            for policy in ("plain", "eqspec", "exspec", "ragged"):
                for batch in work.batches:
                    run(compute, policy, batch)


job.main(program)
