"""Steps that no default policy uses: they reproduce the designs which the shipped policies are named after."""
