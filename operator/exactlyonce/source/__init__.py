"""What the source holds: earliest, latest, identity. Observed, never decided on here."""
