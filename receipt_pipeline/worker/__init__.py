"""Works off accepted jobs: claim, run the chain, publish, commit."""
